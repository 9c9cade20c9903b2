"""Concurrency keys: this many jobs of a key at once, the others wait in their order and hold up nobody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from fusion.store.layout.records import Claimed, ClaimFilter
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from tests.kit.hands import (
    LEASE,
    TASK,
    Hand,
    events_of,
    expire_lease,
    fields_of,
    ids,
    may_reap,
    new,
    outcome,
    over,
    put,
    status_of,
)
from tests.store.limits_hands import faults, give, holders, tied, waiting


def test_five_jobs_of_a_key_with_two_slots_start_in_exactly_their_order(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"ABCDE", limit=2)
    assert (holders(conn), waiting(conn)) == (["A", "B"], ["C", "D", "E"])
    assert [status_of(conn, one) for one in "BC"] == ["queued", "blocked"]
    hand = Hand(broker, "q")
    running = hand.claim(5)
    assert ids(running) == ["A", "B"]
    for expected in "CDE":
        turn = hand.turn(outcome(running.pop(0)), slots=[0, 0])
        assert ids(turn.jobs) == [expected], "the turn that ends one takes the next"
        running += turn.jobs
        assert faults(conn) == []
    for job in running:
        hand.tell(job)
    assert faults(conn) == []
    assert not conn.exists("rq:limits:held:k", "rq:limits:waiting:k", "rq:blocked:q")
    told = [(event["event"], event.get("reason"), event.get("limit")) for event in events_of(conn, "C")]
    assert told[:3] == [("queued", None, None), ("blocked", "limit", "k"), ("queued", "admitted", None)]


def test_a_key_holds_up_no_others(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"abc")
    give(broker, "q", "other", key="o")
    put(broker, "q", "free")
    assert ids(Hand(broker, "q").claim(5)) == ["a", "other", "free"]
    assert faults(conn) == []


def test_a_key_spans_queues(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a")
    give(broker, "p", "b")
    give(broker, "q", "c")
    hand = Hand(broker, "p", "q")
    (a,) = hand.claim(3)
    assert a.id == "a"
    (b,) = hand.turn(outcome(a), slots=[0] * 3).jobs
    assert (b.id, b.queue) == ("b", "p")
    assert ids(hand.turn(outcome(b), slots=[0]).jobs) == ["c"]


def test_a_job_that_is_admitted_wakes_a_worker_of_its_queue(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a")
    give(broker, "p", "b")
    hand = Hand(broker, "q")
    job = hand.take()
    conn.delete("rq:wake:p", "rq:wake:q")
    hand.tell(job)
    assert conn.exists("rq:wake:p") == 1
    assert conn.exists("rq:wake:q") == 0


def test_a_better_newcomer_takes_the_slot_of_one_that_has_not_started(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b", limit=2)
    give(broker, "q", "high", limit=2, priority=2)
    assert (holders(conn), waiting(conn)) == (["high", "a"], ["b"])
    assert status_of(conn, "b") == "blocked"
    assert ids(Hand(broker, "q").claim(5)) == ["high", "a"]
    give(broker, "q", "higher", limit=2, priority=3)
    assert waiting(conn) == ["higher", "b"], "those that run keep theirs"
    assert faults(conn) == []


def test_the_last_enqueue_that_says_so_sets_the_limit(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"abcd", limit=1)
    give(broker, "q", "e", limit=3)
    assert (holders(conn), waiting(conn)) == (["a", "b", "c"], ["d", "e"])
    give(broker, "q", "f", limit=None)
    assert len(holders(conn)) == 3, "one that names none changes nothing"
    hand = Hand(broker, "q")
    hand.claim(2)
    give(broker, "q", "g", limit=1)
    assert (holders(conn), waiting(conn)) == (["b", "a"], ["c", "d", "e", "f", "g"]), "two run, and no third one starts"
    assert faults(conn) == []
    assert status_of(conn, "c") == "blocked"


def test_a_key_without_a_number_has_one_slot(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b", limit=None)
    assert (holders(conn), waiting(conn)) == (["a"], ["b"])


def test_jobs_of_one_call(conn: redis.Redis, broker: Broker) -> None:
    jobs = [tied("a"), tied("b"), new("c"), tied("d", priority=2), tied("e", key="o")]
    broker.enqueue("q", jobs, "n")
    broker.enqueue("q", jobs, "n")
    assert (holders(conn), waiting(conn), holders(conn, "o")) == (["d"], ["a", "b"], ["e"])
    assert faults(conn) == []


# -- whatever ends, or leaves, hands its slot on


def _tell(kind: str, **more: object) -> Callable[[redis.Redis, Broker, Hand], None]:
    return lambda conn, broker, hand: [hand.tell(job, kind, **more) for job in hand.claim()] and None  # type: ignore[func-returns-value,arg-type]


def _canceled(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    broker.cancel("a")


def _canceled_while_it_ran(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    job = hand.take()
    broker.cancel("a")
    hand.tell(job, "release", reason="r")


def _deleted(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    broker.delete(["a"])


def _emptied(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    broker.empty("q")


def _expired(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    conn.zadd("rq:expiring", {"a": 1})
    over(conn, "a")
    broker.expire()


def _expired_in_a_claim(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    over(conn, "a")
    hand.turn(slots=[0], queues=["q"])


def _corrupt(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    conn.hdel("rq:job:a", "data")
    hand.turn(slots=[0], queues=["q"])


def _lost_for_good(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    conn.hset("rq:job:a", "on_lost", "fail")
    hand.take()
    may_reap(conn)
    expire_lease(conn, "q", "a")
    broker.reap(LEASE, 0)


def _pruned_for_good(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    conn.hset("rq:job:a", "on_lost", "fail")
    hand.take()
    broker.prune(LEASE, hand.name)


def _held_in_a_claim(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    hand.turn(slots=[0], claim_filter=ClaimFilter(lacking={TASK: "no such task"}))


WAYS: dict[str, Callable[[redis.Redis, Broker, Hand], None]] = {
    "finished": _tell("finished"),
    "failed": _tell("failed", reason="r"),
    "retry": _tell("retry", reason="r", delay=60.0),
    "later": _tell("later", reason="r", delay=60.0),
    "held": _tell("held", reason="r", delay=60.0, fields={"task": "shop.f"}),
    "canceled": _canceled,
    "canceled while it ran": _canceled_while_it_ran,
    "deleted": _deleted,
    "emptied": _emptied,
    "expired": _expired,
    "expired in a claim": _expired_in_a_claim,
    "corrupt": _corrupt,
    "lost for good": _lost_for_good,
    "pruned for good": _pruned_for_good,
    "held in a claim": _held_in_a_claim,
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_ends_or_leaves_hands_its_slot_on_in_that_call(conn: redis.Redis, broker: Broker, way: str) -> None:
    give(broker, "q", "a")
    give(broker, "p", "b", "c")
    WAYS[way](conn, broker, Hand(broker, "q"))
    assert (holders(conn), waiting(conn)) == (["b"], ["c"])
    assert faults(conn) == []
    assert ids(Hand(broker, "p", name="host.2").claim(2)) == ["b"]


@pytest.mark.parametrize("way", ["canceled", "deleted", "emptied", "expired"])
def test_one_that_waits_for_a_slot_goes_in_every_way(conn: redis.Redis, broker: Broker, way: str) -> None:
    give(broker, "p", "first", "second")
    give(broker, "q", "a")
    give(broker, "p", "last")
    assert waiting(conn) == ["second", "a", "last"]
    WAYS[way](conn, broker, Hand(broker, "q"))
    assert (holders(conn), waiting(conn)) == (["first"], ["second", "last"])
    assert not conn.exists("rq:blocked:q")
    assert faults(conn) == []


def test_an_emptied_queue_stays_empty(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"abcdef", limit=2)
    total, again = 0, True
    while again:
        deleted, again = broker.empty("q", 2)
        total += deleted
    assert total == 6
    assert not conn.exists("rq:queue:q", "rq:blocked:q", "rq:limits:held:k", "rq:limits:waiting:k")


# -- what comes back


@pytest.mark.parametrize("kind", ["release", "lost", "retry"])
def test_a_released_job_keeps_its_slot(conn: redis.Redis, broker: Broker, kind: str) -> None:
    give(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    hand.tell(hand.take(), kind, reason="r")
    assert (status_of(conn, "a"), holders(conn), waiting(conn)) == ("queued", ["a"], ["b"])
    assert faults(conn) == []
    assert ids(hand.claim(2)) == ["a"]


def test_one_that_is_lost_again_keeps_its_slot_over_its_pause(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b", on_lost="again")
    conn.hset("rq:job:a", "lost", 1)
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "lost", reason="r")
    assert (status_of(conn, "a"), holders(conn)) == ("scheduled", ["a"])
    conn.zadd("rq:scheduler:scheduled_jobs", {"a": 1}, xx=True)
    broker.promote()
    assert faults(conn) == []
    assert ids(hand.claim(2)) == ["a"]


def test_a_job_of_a_dead_worker_keeps_its_slot(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    hand.take()
    broker.prune(LEASE, hand.name)
    assert (holders(conn), waiting(conn)) == (["a"], ["b"])
    assert faults(conn) == []


def test_a_job_that_returns_to_a_lower_limit_waits(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b", limit=2)
    hand = Hand(broker, "q")
    (a, b) = hand.claim(2)
    give(broker, "q", "c", limit=1)
    hand.tell(a, "release", reason="r")
    assert (holders(conn), waiting(conn)) == (["b"], ["a", "c"])
    hand.tell(b, "release", reason="r")
    assert (holders(conn), waiting(conn)) == (["a"], ["b", "c"])
    assert faults(conn) == []


def test_a_retry_comes_back_in_its_order(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b", "c")
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "retry", reason="r", delay=60.0)
    conn.zadd("rq:scheduler:scheduled_jobs", {"a": 1}, xx=True)
    broker.promote()
    assert (holders(conn), waiting(conn)) == (["a"], ["b", "c"]), "nobody had started"
    assert ids(hand.claim(3)) == ["a"]
    broker.cancel("c"), broker.requeue(["c"], "n")
    assert waiting(conn) == ["b", "c"]
    assert faults(conn) == []


def test_one_that_was_held_needs_a_slot_to_start(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    hand.turn(slots=[0], claim_filter=ClaimFilter(lacking={TASK: "no such task"}))
    assert holders(conn) == ["b"]
    b = hand.take()
    other = Hand(broker, "q", name="host.2")
    assert other.turn(slots=[0], claim_filter=ClaimFilter(sets=(f"held:q:{TASK}",))).jobs == []
    assert (fields_of(conn, "a")["waits_in"], waiting(conn)) == ("limit:k", ["a"])
    assert not conn.exists(f"rq:waits:held:q:{TASK}")
    hand.tell(b)
    assert ids(other.claim()) == ["a"]
    assert faults(conn) == []


def test_one_that_was_held_starts_from_there_if_a_slot_is_free(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a")
    Hand(broker, "q").turn(slots=[0], claim_filter=ClaimFilter(lacking={TASK: "no such task"}))
    assert holders(conn) == []
    assert ids(Hand(broker, "q", name="host.2").turn(slots=[0], claim_filter=ClaimFilter(sets=(f"held:q:{TASK}",))).jobs) == ["a"]
    assert holders(conn) == ["a"]
    assert faults(conn) == []


def test_a_job_for_later_arrives_when_it_is_due(conn: redis.Redis, broker: Broker) -> None:
    broker.enqueue("q", [tied("later", delay=60.0)], "n")
    assert not conn.exists("rq:limits:held:k")
    give(broker, "q", "a")
    conn.zadd("rq:scheduler:scheduled_jobs", {"later": 1}, xx=True)
    broker.promote()
    assert (status_of(conn, "later"), waiting(conn)) == ("blocked", ["later"])
    assert faults(conn) == []


def test_jobs_of_an_inbox_arrive_when_they_are_taken_over(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "scheduler", "a", "b")
    hand = Hand(broker, "scheduler")
    (a,) = hand.claim(3)
    assert (a.id, waiting(conn)) == ("a", ["b"])
    assert ids(hand.turn(outcome(a), slots=[0, 0]).jobs) == ["b"]


# -- claiming


def test_at_most_half_of_a_keys_slots_are_claimed_ahead(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "x")
    give(broker, "q", *"abcdef", limit=5)
    put(broker, "q", "z")
    put(broker, "p", "other")
    hand = Hand(broker, "q", "p")
    turn = hand.turn(slots=[0] * 7, ahead=6)
    assert ids(turn.jobs) == ["x", "other", "a", "b"], "what stands behind it in its queue is not, either"
    assert [job.fields.get(b"concurrency_key") for job in turn.jobs] == [None, None, b"k", b"k"]
    assert [status_of(conn, one) for one in "acf"] == ["started", "queued", "blocked"]
    assert faults(conn) == []
    a, b = turn.jobs[2:]
    hand.turn(outcome(a, "release"))
    assert (holders(conn), faults(conn)) == (["b", "a", "c", "d", "e"], []), "it keeps its slot"
    assert ids(hand.claim(4)) == ["a", "c", "d", "e"]
    assert ids(hand.turn(outcome(b), slots=[0, 0, 0]).jobs) == ["f", "z"]
    assert faults(conn) == []


@pytest.mark.parametrize(
    ("more", "taken"),
    [
        pytest.param({"limit": 1}, ["x"], id="its one slot"),
        pytest.param({"limit": 2}, ["x", "a"], id="one of two"),
        pytest.param({"limit": 9, "rate": "9/1000/9"}, ["x"], id="its start spends a token"),
        pytest.param({"limit": 9, "ties": "kt", "limit_duration": 60000}, ["x"], id="its time counts from its start"),
        pytest.param({"limit": 9, "ties": "km"}, ["x"], id="it shares a call"),
    ],
)
def test_what_is_claimed_ahead_has_a_slot_to_spare(
    conn: redis.Redis, broker: Broker, more: dict[str, Any], taken: list[str]
) -> None:
    put(broker, "q", "x")
    give(broker, "q", "a", "b", **more)
    hand = Hand(broker, "q")
    assert ids(hand.turn(slots=[0] * 4, ahead=3).jobs) == taken
    assert ids(hand.turn(slots=[0] * 3, ahead=3).jobs) == []
    assert faults(conn) == []


def test_a_paused_key_is_not_claimed_ahead(conn: redis.Redis, broker: Broker, limits: LimitBroker) -> None:
    put(broker, "q", "x")
    give(broker, "q", "a", limit=9)
    limits.pause_limit("k", 60)
    assert ids(Hand(broker, "q").turn(slots=[0] * 2, ahead=1).jobs) == ["x"]
    limits.resume_limit("k")
    assert ids(Hand(broker, "q", name="B").turn(slots=[0], ahead=1).jobs) == ["a"]


def test_jobs_that_were_claimed_ahead_by_a_dead_worker_keep_their_slots(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "x")
    give(broker, "q", *"abcde", limit=4)
    dead = Hand(broker, "q")
    assert ids(dead.turn(slots=[0] * 4, ahead=3).jobs) == ["x", "a", "b"]
    expire_lease(conn, "q", "x", "a", "b")
    may_reap(conn)
    broker.reap(LEASE, 0)
    assert (faults(conn), waiting(conn)) == ([], ["e"])
    assert set(holders(conn)) == set("abcd")
    assert [fields_of(conn, one).get("lost") for one in "ab"] == ["0", "0"], "they had not begun"


# -- claiming behind the last job of a key


@pytest.fixture
def chain(conn: redis.Redis, broker: Broker) -> tuple[Hand, list[Claimed]]:
    """A worker that was given a, and behind it b, c and d; e and f of the key still wait."""
    give(broker, "q", *"abcdef")
    hand = Hand(broker, "q")
    jobs = hand.turn(slots=[0] * 4, ahead=3).jobs
    assert ids(jobs) == ["a", "b", "c", "d"]
    return hand, jobs


def test_jobs_behind_the_last_one_of_their_key_run_in_its_slot(conn: redis.Redis, chain: tuple[Hand, list[Claimed]]) -> None:
    hand, (a, b, c, d) = chain
    assert [job.predecessor for job in (a, b, c, d)] == ["", a.execution_id, b.execution_id, c.execution_id]
    assert ids(hand.turn(slots=[0] * 4, ahead=3, token=hand.token).jobs) == ["a", "b", "c", "d"]
    again = hand.turn(slots=[0] * 4, ahead=3, token=hand.token).jobs
    assert [job.predecessor for job in again] == [job.predecessor for job in (a, b, c, d)]
    assert (holders(conn), waiting(conn), faults(conn)) == (["a"], ["e", "f"], [])
    hand.tell(a)
    assert (holders(conn), faults(conn)) == (["b"], []), "the commit passes the slot on"
    assert ids(hand.turn(outcome(b), outcome(c), slots=[0] * 2, ahead=1).jobs) == []
    assert (holders(conn), faults(conn)) == (["d"], [])
    last = hand.turn(outcome(d), slots=[0] * 3, ahead=2).jobs
    assert (ids(last), holders(conn), faults(conn)) == (["e", "f"], ["e"], [])
    hand.turn(*map(outcome, last))
    assert faults(conn) == [] and not conn.exists("rq:limits:held:k")


@pytest.mark.parametrize("kind", ["failed", "retry", "release", "lost", "later", "stopped"])
@pytest.mark.parametrize("first", [True, False])
def test_a_job_that_does_not_finish_passes_no_slot_on(
    conn: redis.Redis, chain: tuple[Hand, list[Claimed]], kind: str, first: bool
) -> None:
    """Those behind it come back unbegun, before it or after it, and the order of the key stays."""
    hand, (a, b, c, d) = chain
    back = [outcome(job, "release") for job in (b, c, d)]
    told = outcome(a, kind, delay=60.0 if kind == "later" else 0.0)
    hand.turn(*([told, *back] if first else [*back, told]))
    assert faults(conn) == []
    keeps = kind in ("retry", "release", "lost")
    assert (holders(conn), waiting(conn)) == ((["a"], [*"bcdef"]) if keeps else (["b"], [*"cdef"]))
    order = []
    while jobs := hand.turn(slots=[0, 0], ahead=1).jobs:
        order += ids(jobs)
        hand.turn(*map(outcome, jobs))
        assert faults(conn) == []
    assert order == (["a"] if keeps else []) + [*"bcdef"]


def test_a_dead_workers_chain_frees_its_slot_once(conn: redis.Redis, broker: Broker, chain: tuple[Hand, list[Claimed]]) -> None:
    hand, jobs = chain
    hand.tell(jobs[0])
    expire_lease(conn, "q", "b", "c", "d")
    may_reap(conn)
    broker.reap(LEASE, 0)
    assert (holders(conn), waiting(conn), faults(conn)) == (["b"], ["c", "d", "e", "f"], [])
    assert ids(Hand(broker, "q", name="B").turn(slots=[0] * 6, ahead=5).jobs) == ["b"], (
        "what ran before waits for a slot of its own"
    )


def test_a_slot_is_passed_to_no_later_execution_of_the_job_behind(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"abcde", limit=2)
    hand = Hand(broker, "q")
    a, b, c = hand.turn(slots=[0] * 3, ahead=1).jobs
    assert (c.id, c.predecessor) == ("c", a.execution_id)
    hand.turn(outcome(c, "release"), outcome(b))
    (again,) = Hand(broker, "q", name="B").claim()
    assert (again.id, again.predecessor, faults(conn)) == ("c", "", [])
    hand.tell(a)
    assert (holders(conn), waiting(conn), faults(conn)) == (["c", "d"], ["e"], [])


def test_a_better_newcomer_is_next_behind_a_chain(conn: redis.Redis, broker: Broker, chain: tuple[Hand, list[Claimed]]) -> None:
    hand, jobs = chain
    give(broker, "q", "urgent", priority=2)
    assert (holders(conn), faults(conn)) == (["a"], [])
    assert ids(hand.turn(*map(outcome, jobs), slots=[0] * 2, ahead=1).jobs) == ["urgent", "e"]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"rate": "9/1000/9"}, id="its key has a rate"),
        pytest.param({"ties": "kt", "limit_duration": 60000}, id="its time counts from its start"),
        pytest.param({"ties": "km"}, id="it shares a call"),
        pytest.param({"isolate": 1}, id="it runs alone in its process"),
        pytest.param({"deliveries": 1}, id="it ran before"),
    ],
)
def test_what_does_not_run_in_the_slot_of_another(conn: redis.Redis, broker: Broker, more: dict[str, Any]) -> None:
    give(broker, "q", "a", *"b")
    give(broker, "q", "c", **more)
    assert ids(Hand(broker, "q").turn(slots=[0] * 4, ahead=3).jobs) == (["a"] if "rate" in more else ["a", "b"])
    assert faults(conn) == []


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        pytest.param([("q", "a", "k", 1), ("q", "b", "k", 1), ("q", "x", "o", 1)], ["a", "b"], id="it came before the other"),
        pytest.param([("q", "a", "k", 1), ("q", "x", "o", 1), ("q", "b", "k", 1)], ["a"], id="the other came before it"),
        pytest.param(
            [("q", "a", "k", 1), ("p", "x", "o", 1), ("q", "b", "k", 1)], ["a", "b"], id="the other is in another queue"
        ),
        pytest.param([("q", "a", "k", 2), ("q", "b", "k", 0), ("p", "x", "o", 1)], ["a"], id="the other is of a higher class"),
    ],
)
def test_a_job_that_waits_for_a_process_goes_before_one_that_would_run_in_anothers_slot(
    conn: redis.Redis, broker: Broker, given: list[tuple[str, str, str, int]], taken: list[str]
) -> None:
    for queue, job_id, key, priority in given:
        give(broker, queue, job_id, key=key, priority=priority)
    assert ids(Hand(broker, "q", "p").turn(slots=[0] * 3, ahead=2).jobs) == taken
    assert faults(conn) == []


@pytest.mark.parametrize("before", [False, True])
def test_a_queued_job_without_a_slot_is_not_claimed(conn: redis.Redis, broker: Broker, before: bool) -> None:
    """Somebody else put it there, `before` the one that has it or behind."""
    give(broker, "q", "a", "b")
    score = conn.zscore("rq:queue:q", "a") + 2**-30 if before else conn.zscore("rq:limits:waiting:k", "b")
    conn.zrem("rq:limits:waiting:k", "b"), conn.zrem("rq:blocked:q", "b")
    conn.hset("rq:job:b", "status", "queued"), conn.hdel("rq:job:b", "waits_in")
    conn.zadd("rq:queue:q", {"b": score})
    assert ids(Hand(broker, "q").claim(3)) == ["a"]
    assert waiting(conn) == ["b"]
    assert faults(conn) == []


def test_a_resend_of_a_claim_answers_alike(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    first = hand.turn(slots=[0, 0])
    again = hand.turn(slots=[0, 0], token=hand.token)
    assert ids(first.jobs) == ids(again.jobs) == ["a"]
    done = hand.turn(outcome(first.jobs[0]), slots=[0, 0])
    again = hand.turn(outcome(first.jobs[0]), slots=[0, 0], token=hand.token)
    assert (ids(done.jobs), ids(again.jobs)) == (["b"], ["b"])
    assert faults(conn) == []


@pytest.mark.parametrize(("limit", "started"), [(1, "abcd"), (2, "acbd")])
def test_a_job_that_is_to_run_alone_keeps_its_slot(conn: redis.Redis, broker: Broker, limit: int, started: str) -> None:
    give(broker, "q", *"abcd", limit=limit)
    for job_id in "ab":
        conn.hset(f"rq:job:{job_id}", mapping={"lost": 3, "deliveries": 3})
    others, lone, order = Hand(broker, "q"), Hand(broker, "q", name="lone.1", alone=True), ""
    for _ in range(8):
        for hand in (others, lone):
            for job in hand.turn(slots=[0]).jobs:
                order += job.id
                assert faults(conn) == []
                hand.tell(job)
    assert order == started, "two that gave way to each other would do so for ever"
    assert faults(conn) == []
