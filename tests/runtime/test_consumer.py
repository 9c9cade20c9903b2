"""The turn loop, told by a scripted Redis: what a turn carries, what is kept, what is asked for again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import inf

import pytest

from fusion.execution.completion import Decision
from fusion.runtime.consumer import MOST_SLOTS, Consumer
from fusion.runtime.context import ProcessContext
from fusion.runtime.free_slots import ANY, HIGH, NO_SLOTS, FreeSlots
from fusion.runtime.job_log import JobLog
from fusion.runtime.loop import Loop
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.runtime.supervised import SupervisorLine
from fusion.settings import Settings
from fusion.store.layout.records import Claimed, Turn, TurnRequest
from tests.kit.scripted_broker import ScriptedBroker, answer, claimed

LOG = logging.getLogger("consumer")
DONE, AGAIN = Decision("finished"), Decision("retry", "ValueError")
ONE = FreeSlots([ANY])


class _Owner:
    """Has no slots: these tests make up each turn themselves."""

    busy = False

    def free_slots(self) -> FreeSlots:
        return NO_SLOTS

    def claim_filter(self, now: float) -> None:
        return None

    def turn_sent(self, slots: FreeSlots) -> None:
        return None

    def start_jobs(self, jobs: Sequence[Claimed]) -> None:
        return None

    def turn_ended(self, turn: Turn, slots: FreeSlots, *, seconds: float, moved: int) -> None:
        return None


def consumer_of(broker: ScriptedBroker, *queues: str) -> Consumer:
    settings = Settings(idle_wait=3.0, name="w")
    process = ProcessContext(settings, broker, RedisLink(LOG), Loop(), LOG)  # type: ignore[arg-type]
    made = Consumer(process, ServedQueues(queues or ("sms",)), JobLog(LOG, True), SupervisorLine(), _Owner())
    made.enter()
    return made


def turn(consumer: Consumer, slots: FreeSlots = NO_SLOTS) -> list[str]:
    consumer.begin_turn(slots)
    return [job.id for job in consumer.exchange()]


def test_the_first_turn_is_wanted_once_it_has_entered() -> None:
    consumer = consumer_of(ScriptedBroker())
    assert (consumer.turn_due, consumer.next_at) == (True, 0)
    assert turn(consumer, ONE) == []
    assert not consumer.turn_due


@pytest.mark.parametrize("slots", [NO_SLOTS, FreeSlots([], 0)])
def test_a_turn_with_nothing_to_say_is_none(slots: FreeSlots) -> None:
    broker = ScriptedBroker()
    consumer = consumer_of(broker)
    assert turn(consumer, slots) == []
    assert (broker.sent, consumer.turn, consumer.moved) == ([], None, 0)


@pytest.mark.parametrize(
    ("slots", "sent", "ahead"),
    [
        (FreeSlots([ANY]), [0], 0),
        (FreeSlots([ANY, ANY, HIGH]), [0, 0, 2], 0),
        (FreeSlots([HIGH]), [2], 0),
        (FreeSlots([ANY], 2), [0, 0, 0], 2),
        (FreeSlots([], 3), [0, 0, 0], 3),
        (FreeSlots([HIGH], 1), [2, 0], 1),
    ],
)
def test_slots_as_they_are_sent(slots: FreeSlots, sent: list[int], ahead: int) -> None:
    broker = ScriptedBroker()
    turn(consumer_of(broker), slots)
    assert (broker.sent[0].slots, broker.sent[0].ahead) == (sent, ahead)


@pytest.mark.parametrize("jobs", [1, 2, 5])
@pytest.mark.parametrize("again", [False, True])
def test_jobs_that_a_turn_brings(jobs: int, again: bool) -> None:
    ids = [f"job-{n}" for n in range(jobs)]
    consumer = consumer_of(ScriptedBroker(answer(*map(claimed, ids), again=again)))
    assert turn(consumer, FreeSlots([ANY] * jobs)) == ids
    assert (consumer.moved, consumer.turn_due) == (jobs, again)


@pytest.mark.parametrize("decision", [DONE, AGAIN, Decision("failed", "x"), Decision("release", "x"), Decision("lost", "x")])
@pytest.mark.parametrize("count", [1, 3])
def test_an_outcome_requests_a_turn_and_is_sent_once(decision: Decision, count: int) -> None:
    broker = ScriptedBroker()
    consumer = consumer_of(broker)
    turn(consumer, ONE)
    for n in range(count):
        consumer.resolve(claimed(f"job-{n}"), decision, 1.5)
    assert (consumer.turn_due, consumer.next_at) == (True, 0)
    turn(consumer)
    assert [(commit.kind, commit.job_id, commit.elapsed) for commit in broker.sent[-1].commits] == [
        (decision.kind, f"job-{n}", 1.5) for n in range(count)
    ]
    assert consumer.outbox.flushed
    assert consumer.moved == count
    turn(consumer)
    assert len(broker.sent) == 2


@pytest.mark.parametrize("failures", [1, 2, 4])
def test_a_turn_without_an_answer_is_sent_again_word_for_word(failures: int) -> None:
    broker = ScriptedBroker(*[OSError("gone")] * failures, answer(claimed("b"), answers=["ok"]))
    consumer = consumer_of(broker)
    consumer.resolve(claimed("a"), DONE, 0.1)
    for _ in range(failures):
        with pytest.raises(RedisAway):
            turn(consumer, ONE)
    consumer.resolve(claimed("later"), DONE, 0.1)
    assert [held.id for held in consumer.outbox.uncommitted()] == ["later", "a"]
    assert turn(consumer, NO_SLOTS) == ["b"], "the slots are those of the first try"
    assert len({sent.token for sent in broker.sent}) == 1
    assert {tuple(commit.job_id for commit in sent.commits) for sent in broker.sent} == {("a",)}
    turn(consumer)
    assert [commit.job_id for commit in broker.sent[-1].commits] == ["later"]
    assert broker.sent[-1].token == broker.sent[0].token + 1


@pytest.mark.parametrize("times", [1, 2])
def test_an_entry_that_is_gone_is_made_anew_and_the_turn_kept_under_another_token(times: int) -> None:
    broker = ScriptedBroker(*[answer(status="unregistered")] * times, answer(answers=["ok"]))
    consumer = consumer_of(broker)
    consumer.resolve(claimed("a"), DONE, 0.1)
    for _ in range(times):
        assert turn(consumer, ONE) == []
        assert (consumer.turn, consumer.turn_due) == (None, True)
    turn(consumer, ONE)
    assert consumer.outbox.flushed
    assert broker.calls.count("register") == 1 + times
    assert len({sent.token for sent in broker.sent}) == 1 + times
    assert all([commit.job_id for commit in sent.commits] == ["a"] for sent in broker.sent)


def test_a_sign_of_life_that_finds_no_entry_renumbers_a_turn_under_way() -> None:
    broker = ScriptedBroker(OSError("gone"))
    consumer = consumer_of(broker)
    with pytest.raises(RedisAway):
        turn(consumer, ONE)
    broker.known = False
    consumer.membership.beat(consumer.membership.next_at, [])
    turn(consumer, ONE)
    assert broker.sent[0].token != broker.sent[1].token


@pytest.mark.parametrize("refusals", [1, 3, 5, 6])
def test_an_outcome_that_a_broken_key_refuses_is_offered_a_few_times(refusals: int, caplog: pytest.LogCaptureFixture) -> None:
    broker = ScriptedBroker(*[answer(answers=["error: WRONGTYPE"])] * refusals)
    consumer = consumer_of(broker)
    consumer.resolve(claimed("a"), DONE, 0.1)
    for _ in range(refusals):
        turn(consumer)
        assert [held.id for held in consumer.outbox.uncommitted()] == (["a"] if len(broker.sent) <= 5 else [])
        consumer.outbox.retry_commits(inf)
    turn(consumer)
    assert len(broker.sent) == (refusals + 1 if refusals <= 5 else 6)
    assert ("runs again when its lease is over" in caplog.text) == (refusals == 6)


@pytest.mark.parametrize("status", ["ok", "suspended"])
def test_a_turn_reports_whether_the_fleet_is_suspended(status: str) -> None:
    consumer = consumer_of(ScriptedBroker(answer(status=status)))
    turn(consumer, ONE)
    assert consumer.job_log.is_suspended == (status == "suspended")
    assert consumer.turn is not None
    assert consumer.turn.status == status


@pytest.mark.parametrize(("next_in", "sooner"), [(None, False), (0.01, True), (0.5, True), (900.0, False)])
def test_the_next_due_job_is_looked_for_in_time(next_in: float | None, sooner: bool) -> None:
    consumer = consumer_of(ScriptedBroker(answer(next_in=next_in)))
    consumer.maintenance.tick(0.0)  # all of it is done, and due again in a while of its own
    consumer.maintenance.tick(1e6)
    before = consumer.maintenance.next_at
    turn(consumer, ONE)
    assert (consumer.maintenance.next_at < before) == (next_in is not None)


def test_queues_of_one_class_take_turns() -> None:
    broker = ScriptedBroker(answer(claimed("a", "sms")), answer(claimed("b", "web")))
    consumer = consumer_of(broker, "sms", "web", "pn")
    for _ in range(3):
        turn(consumer, ONE)
    assert [sent.queues for sent in broker.sent] == [["sms", "web", "pn"], ["web", "pn", "sms"], ["pn", "sms", "web"]]


@pytest.mark.parametrize(
    ("slots", "now", "wants", "next_at"),
    [
        (ONE, 10.0, True, 0),
        (FreeSlots([HIGH]), 10.0, True, 0),
        (NO_SLOTS, 10.0, False, inf),
        (FreeSlots([], 2), 10.0, False, inf),
    ],
)
def test_a_consumer_polls_while_a_slot_is_free(slots: FreeSlots, now: float, wants: bool, next_at: float) -> None:
    consumer = consumer_of(ScriptedBroker())
    turn(consumer, ONE)
    consumer.poll(now, slots.floors)
    assert (consumer.turn_due, consumer.next_at) == (wants, next_at)
    if wants:
        turn(consumer, ONE)
        assert consumer.next_at == now + 3.0
        consumer.poll(now + 2.9, slots.floors)
        assert not consumer.turn_due
        consumer.poll(now + 3.0, slots.floors)
        assert consumer.turn_due


@pytest.mark.parametrize("more", [False, True])
def test_wildcards_are_surveyed_when_it_looks(more: bool) -> None:
    broker = ScriptedBroker()
    broker.more_to_survey = more
    consumer = consumer_of(broker, "sms*")
    consumer.poll(10.0, [ANY])
    turn(consumer, ONE)
    assert broker.calls.count("survey") == (100 if more else 1)
    assert consumer.next_at == (10.0 if more else 13.0)


@pytest.mark.parametrize(
    ("for_any", "queue", "floors", "wants", "passed_on"),
    [
        (True, "sms", [ANY], True, []),
        (True, "sms", [ANY, HIGH], True, []),
        (True, "sms", [HIGH], True, ["sms"]),
        (True, "sms", [], False, ["sms"]),
        (False, "sms", [HIGH], True, []),
        (False, "sms", [ANY], True, []),
        (False, "sms", [], False, ["sms"]),
    ],
)
def test_a_token_that_fits_no_slot_is_passed_on(
    for_any: bool, queue: str, floors: list[int], wants: bool, passed_on: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = ScriptedBroker()
    consumer = consumer_of(broker)
    turn(consumer, ONE)
    bells = consumer.doorbells
    bell, hear = (bells._any, bells._on_any) if for_any else (bells._high, bells._on_high)
    monkeypatch.setattr(bell, "receive", lambda: queue)
    hear()
    assert consumer.next_at == 0
    consumer.poll(-1.0, floors)
    assert (consumer.turn_due, broker.rung, bells.rung) == (wants, passed_on, [])


def test_a_token_is_not_passed_on_while_redis_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ScriptedBroker(OSError("gone"))
    consumer = consumer_of(broker)
    with pytest.raises(RedisAway):
        turn(consumer, ONE)
    monkeypatch.setattr(consumer.doorbells._any, "receive", lambda: "sms")
    consumer.doorbells._on_any()
    consumer.poll(-1.0, [])
    assert broker.rung == []


@pytest.mark.parametrize(("begun", "told"), [(True, True), (False, False)])
def test_the_begin_of_a_prefetched_job_is_sent_unless_it_has_ended(begun: bool, told: bool) -> None:
    broker = ScriptedBroker()
    consumer = consumer_of(broker)
    job = claimed("a", ahead=True)
    consumer.outbox.report_begun(job)
    if not begun:
        consumer.resolve(job, DONE, 0.1)
    turn(consumer)
    assert broker.sent[0].begun == ([(job.id, job.execution_id)] if told else [])


@pytest.mark.parametrize(("signaled", "struck"), [(5.0, "struck"), (500.0, "failed")])
def test_a_failure_beside_a_signal_is_lost_if_the_worker_got_it_too(signaled: float, struck: str) -> None:
    broker = ScriptedBroker()
    consumer = consumer_of(broker)
    consumer.outbox.add_signaled(claimed("a"), Decision("failed", "x"), 0.1, Decision("struck", "x"), 5.0)
    turn(consumer)
    assert broker.sent == []
    consumer.outbox.worker_signaled(signaled)
    consumer.outbox.retry_commits(inf)
    turn(consumer)
    assert [commit.kind for commit in broker.sent[0].commits] == [struck]


def test_the_script_runs_out_into_plain_answers() -> None:
    broker = ScriptedBroker()
    assert isinstance(broker.turn_call(TurnRequest("w", "i", 1, [], [], [], 1, 1))(), Turn)


def test_a_turn_is_bounded_and_another_follows_at_once() -> None:
    """A script runs alone on the server: what does not go into one call goes into the next."""
    names = [f"j{n:03}" for n in range(MOST_SLOTS)]
    broker = ScriptedBroker(answer(*(claimed(name) for name in names)))
    consumer = consumer_of(broker)
    assert turn(consumer, FreeSlots([ANY] * 100, 100)) == names
    assert (broker.sent[0].slots, broker.sent[0].ahead) == ([ANY] * MOST_SLOTS, 0)
    assert consumer.turn_due, "there are slots left"
    assert turn(consumer, FreeSlots([ANY] * 20, 100)) == []
    assert (len(broker.sent[1].slots), broker.sent[1].ahead) == (MOST_SLOTS, MOST_SLOTS - 20)
    assert not consumer.turn_due, "Redis has no more"


@pytest.mark.parametrize(
    ("ties", "decision", "parts"),
    [(None, DONE, [59, 41]), (None, AGAIN, [29, 29, 29, 13]), (b"k", DONE, [14] * 7 + [2]), (b"k", AGAIN, [11] * 9 + [1])],
)
def test_outcomes_go_by_weight(ties: bytes | None, decision: Decision, parts: list[int]) -> None:
    broker = ScriptedBroker()
    consumer = consumer_of(broker)
    jobs = [claimed(f"j{n:03}", **({"ties": ties} if ties else {})) for n in range(100)]
    for job in jobs:
        consumer.resolve(job, decision, 0.1)
    told = []
    while not consumer.outbox.flushed:
        assert consumer.next_at == 0.0
        turn(consumer)
        told.append([commit.job_id for commit in broker.sent[-1].commits])
    assert [len(part) for part in told] == parts
    assert [one for part in told for one in part] == [job.id for job in jobs]


@pytest.mark.parametrize("outcome", [False, True])
def test_the_jobs_of_an_answer_start_first_unless_it_answers_outcomes(monkeypatch: pytest.MonkeyPatch, outcome: bool) -> None:
    broker = ScriptedBroker(answer(claimed("b"), answers=["ok"] * outcome))
    consumer = consumer_of(broker)
    order = list[str]()
    monkeypatch.setattr(consumer._served_queues, "served", lambda queue, priority: order.append("served"))
    monkeypatch.setattr(consumer.history, "note", lambda result: order.append("outcome"))
    if outcome:
        consumer.resolve(claimed("a"), DONE, 0.1)
    consumer.begin_turn(ONE)
    started = list[str]()
    monkeypatch.setattr(
        consumer._owner, "start_jobs", lambda jobs: (order.append("start"), started.extend(job.id for job in jobs))[1]
    )
    jobs = consumer.exchange()
    assert order == (["outcome", "served", "start"] if outcome else ["start", "served"])
    assert started == [job.id for job in jobs] == ["b"], "once"
