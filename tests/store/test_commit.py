"""What happens to an execution: every kind of outcome, told once, twice, late, or by the wrong one."""

from __future__ import annotations

import pytest
import redis

from fusion.kernel import defaults
from fusion.kernel.timeutil import from_iso
from fusion.store.layout.score import score_of
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import (
    LEASE,
    Hand,
    drain,
    events_of,
    everything,
    expire_lease,
    fields_of,
    ids,
    may_reap,
    new,
    now_ms,
    outcome,
    promote_all,
    put,
    status_of,
)
from tests.kit.promises import claim

KINDS = ["finished", "failed", "retry", "held", "release", "lost"]
STATUS = {
    "finished": "finished", "failed": "failed", "retry": "scheduled", "held": "scheduled", "release": "queued", "lost": "queued",
}  # fmt: skip


#: Times that a run which had begun is put back uncharged.
SPARED = 5


def _seconds(text: str) -> float:
    moment = from_iso(text)
    assert moment is not None
    return moment.timestamp()


def test_finished(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    now = now_ms(conn) / 1000
    assert hand.tell(claimed, elapsed=2.5, age=1.0, fields={"result": b'"R"', "meta": "{}"}) == "ok"
    found = fields_of(conn, "a")
    assert (found["status"], found["result"], found["meta"]) == ("finished", '"R"', "{}")
    assert _seconds(found["ended_at"]) == pytest.approx(now - 1.0, abs=2)
    assert _seconds(found["ended_at"]) - _seconds(found["started_at"]) == pytest.approx(2.5, abs=1e-5)
    assert conn.zscore("rq:finished:q", "a") == pytest.approx(now + 500, abs=3)
    assert 3600 < conn.ttl("rq:job:a") <= 500 + 3600, "the hash outlives its entry; EXPIRE is a net"
    assert conn.hlen("rq:worker:host.1:jobs") == 0
    assert check_conservation(conn, ["a"]) == {"a": "finished"}
    (event,) = events_of(conn, "a")[2:]
    assert (event["event"], event["worker"], event["elapsed_us"]) == ("completed", "host.1", "2500000")


def test_failed(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", failure_ttl=1000)
    assert hand.tell(hand.take(), "failed", reason="ValueError: no", fields={"exc_info": "Traceback"}) == "ok"
    found = fields_of(conn, "a")
    assert (found["status"], found["reason"], found["exc_info"], found["attempts"]) == (
        "failed",
        "ValueError: no",
        "Traceback",
        "1",
    )
    assert conn.zscore("rq:queue:failed", "a") == pytest.approx(now_ms(conn) / 1000 + 1000, abs=3)
    assert check_conservation(conn, ["a"]) == {"a": "failed"}
    assert (events_of(conn, "a")[-1]["event"], events_of(conn, "a")[-1]["reason"]) == ("failed", "ValueError")


def test_a_retry_keeps_the_place_and_counts_the_attempt(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "first", "second", "third")
    claimed = hand.take()
    assert hand.tell(claimed, "retry", delay=50.0, reason="ConnectTimeout", fields={"retryCount": 8, "exc_info": "T"}) == "ok"
    found = fields_of(conn, "first")
    assert (found["status"], found["attempts"], found["retryCount"], found["exc_info"]) == ("scheduled", "1", "8", "T")
    assert conn.zscore("rq:scheduler:scheduled_jobs", "first") == pytest.approx(now_ms(conn) / 1000 + 50, abs=3)
    assert conn.ttl("rq:job:first") == -1
    assert check_conservation(conn, ["first"]) == {"first": "scheduled"}
    event = events_of(conn, "first")[-1]
    assert (event["event"], event["attempts"], event["delay_ms"]) == ("retry", "1", "50000")
    conn.zadd("rq:scheduler:scheduled_jobs", {"first": 1})
    assert broker.promote()[:2] == (1, None)
    assert drain(hand) == ["first", "second", "third"]


def test_a_retry_that_gave_up_its_place_goes_to_the_end_of_its_priority(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """Retry(place="back"): the worker clears `seq`."""
    put(broker, "q", "first", "second")
    put(broker, "q", "low", priority=0)
    hand.tell(hand.take(), "retry", delay=50.0, fields={"seq": ""})
    promote_all(broker, conn)
    assert conn.zscore("rq:queue:q", "first") == score_of(1, int(fields_of(conn, "first")["seq"])), "and has it from then on"
    assert drain(hand) == ["second", "first", "low"]


@pytest.mark.parametrize("back", [False, True], ids=["at its place", "behind"])
def test_a_retry_without_a_delay_is_queued_in_the_same_call(broker: Broker, conn: redis.Redis, hand: Hand, back: bool) -> None:
    """Nobody need look at the schedule for it, and the slot that it leaves may take it."""
    put(broker, "q", "first", "second")
    put(broker, "q", "low", priority=0)
    turn = hand.turn(outcome(hand.take(), "retry", delay=0.0, reason="r", fields={"seq": ""} if back else {}), slots=[0])
    assert (turn.answers, ids(turn.jobs), turn.next_in) == (["ok"], ["second" if back else "first"], None)
    assert conn.zcard("rq:scheduler:scheduled_jobs") == 0
    told = [(event["event"], event.get("delay_ms")) for event in events_of(conn, "first")]
    assert told[2:4] == [("retry", "0"), ("queued", None)], "the steps of every retry"
    assert turn.jobs + hand.claim(1) and drain(hand) == ["low"]
    assert set(check_conservation(conn, ["first", "second", "low"]).values()) == {"started"}
    assert hand.turn(token=hand.token).answers == []


def test_a_retry_without_a_delay_to_a_broken_queue_waits_in_the_schedule(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    conn.set("rq:queue:q", "junk")
    assert hand.tell(claimed, "retry", reason="r") == "ok"
    conn.delete("rq:queue:q")
    assert check_conservation(conn, ["a"]) == {"a": "scheduled"}


def test_a_turn_returns_when_its_own_retry_is_due(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b", "c")
    retried = outcome(hand.take(), "retry", delay=0.4, reason="r")
    turn = hand.turn(retried, slots=[0])
    assert (ids(turn.jobs), turn.next_in) == (["b"], 0.4)
    assert hand.turn(retried, slots=[0], token=hand.token) == turn, "a resend too"
    assert hand.turn(outcome(turn.jobs[0]), slots=[0]).next_in is None


def test_a_success_after_failures_leaves_no_trace_of_them_but_the_count(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.tell(hand.take(), "lost", reason="gone")
    hand.tell(hand.take(), "retry", reason="E", fields={"exc_info": "Traceback"})
    broker.promote()
    hand.tell(hand.take(), "held", reason="unknown task", fields={"exc_info": "unknown"})
    broker.promote()
    hand.tell(hand.take())
    found = fields_of(conn, "a")
    assert (found["status"], found["attempts"], found["deliveries"]) == ("finished", "1", "4")
    assert not {"exc_info", "reason", "lost", "held_since", "cancel"} & set(found)


def test_held_back_for_a_bounded_time_then_failed(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    said = {"delay": 15.0, "reason": "unknown task", "fields": {"exc_info": "unknown task"}}
    assert hand.tell(hand.take(), "held", **said) == "ok"
    found = fields_of(conn, "a")
    assert (found["status"], found["reason"], "attempts" in found) == ("scheduled", "unknown task", False)
    assert check_conservation(conn, ["a"]) == {"a": "scheduled"}
    since = found["held_since"]
    conn.zadd("rq:scheduler:scheduled_jobs", {"a": 1})
    broker.promote()
    hand.tell(hand.take(), "held", **said)
    assert fields_of(conn, "a")["held_since"] == since
    conn.hset("rq:job:a", "held_since", int(since) - int(defaults.HOLD_TIMEOUT * 1000))
    conn.zadd("rq:scheduler:scheduled_jobs", {"a": 1})
    broker.promote()
    assert hand.tell(hand.take(), "held", **said) == "ok"
    found = fields_of(conn, "a")
    assert (found["status"], found["reason"], found["exc_info"]) == ("failed", "unknown task", "unknown task")
    assert check_conservation(conn, ["a"]) == {"a": "failed"}


def test_a_released_job_keeps_its_place_and_its_attempt(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "first", "second")
    conn.delete("rq:wake:q")
    claimed = hand.take()
    conn.expire("rq:job:first", 50)
    assert hand.tell(claimed, "release", reason="shutdown") == "ok"
    assert conn.ttl("rq:job:first") == -1
    found = fields_of(conn, "first")
    assert not {"attempts", "lost"} & set(found)
    assert conn.llen("rq:wake:q") == 1
    assert events_of(conn, "first")[-1]["event"] == "released"
    assert drain(hand) == ["first", "second"]


def test_lost_counts_up_to_the_cap(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """A horse killed by the host is not the job's fault, until it has happened too often."""
    put(broker, "q", "pill")
    hand = Hand(broker, "q", name="host.2", alone=True)
    for n in range(1, defaults.MAX_LOST):
        assert hand.tell(hand.take(), "lost", reason="SIGKILL") == "ok"
        assert (status_of(conn, "pill"), fields_of(conn, "pill")["lost"]) == ("queued" if n == 1 else "scheduled", str(n))
        promote_all(broker, conn)
    assert hand.tell(hand.take(), "lost", reason="SIGKILL") == "failed"
    found = fields_of(conn, "pill")
    assert found["status"] == "failed"
    assert "poison pill" in found["reason"]
    assert found["exc_info"].startswith("fusion.exceptions.JobLost: SIGKILL (lost ")
    assert found["exc_info"].endswith(" [FUS-152]")
    assert check_conservation(conn, ["pill"]) == {"pill": "failed"}
    put(broker, "q", "next")
    assert drain(hand) == ["next"]


def test_an_outcome_sets_lost_back(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand = Hand(broker, "q", name="host.2", alone=True)
    for _ in range(3):
        hand.tell(hand.take(), "lost", reason="SIGKILL")
        promote_all(broker, conn)
    hand.tell(hand.take(), "retry")
    assert fields_of(conn, "a")["lost"] == "0"


def test_on_lost_fail(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", on_lost="fail")
    claimed = hand.take()
    assert hand.tell(claimed, "lost", reason="SIGKILL") == "failed"
    assert hand.tell(claimed, "lost", reason="SIGKILL") == "failed", "sent again in another turn"
    assert conn.hget("rq:worker:host.1", "failed_job_count") == b"1"
    assert status_of(conn, "a") == "failed"
    assert fields_of(conn, "a")["reason"] == 'SIGKILL (on_lost="fail") [FUS-152]'


def test_the_line_of_a_lost_job_ends_in_one_code(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """Codes of errors that it quotes are left out, as in Python."""
    put(broker, "q", "a", on_lost="fail")
    hand.tell(hand.take(), "lost", reason="app.Gone: its process is gone [FUS-153]")
    assert fields_of(conn, "a")["exc_info"] == (
        'fusion.exceptions.JobLost: app.Gone: its process is gone (on_lost="fail") [FUS-152]'
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_pending_cancel_wins_unless_the_run_finished_or_failed(
    broker: Broker, conn: redis.Redis, hand: Hand, kind: str
) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    assert broker.cancel("a") == "pending"
    assert hand.tell(claimed, kind, reason="r") == "ok"
    expected = kind if kind in ("finished", "failed") else "canceled"
    assert check_conservation(conn, ["a"]) == {"a": expected}
    assert hand.claim() == []


@pytest.mark.parametrize(("ttl", "expiry"), [(0, 60), (5, 60), (61, 61), (None, 500), ("junk", 500)])
def test_how_long_a_result_is_kept(broker: Broker, conn: redis.Redis, hand: Hand, ttl: object, expiry: float) -> None:
    """ADR 0017: the verdict stays a minute at least; result_ttl=0 drops the result alone. What is no number counts as not given."""
    put(broker, "q", "a", result_ttl=ttl)
    hand.tell(hand.take(), fields={"result": "1"})
    assert conn.zscore("rq:finished:q", "a") == pytest.approx(now_ms(conn) / 1000 + expiry, abs=3)
    assert ("result" in fields_of(conn, "a")) is (ttl != 0)
    assert fields_of(conn, "a").get("result_once") == ("1" if ttl == 0 else None), "for its event alone"
    assert conn.ttl("rq:job:a") == pytest.approx(expiry + 3600, abs=3)


def test_a_result_may_be_kept_for_ever(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", result_ttl=-1)
    hand.tell(hand.take(), fields={"result": "1"})
    assert conn.zscore("rq:finished:q", "a") == float("inf")
    assert conn.ttl("rq:job:a") == -1
    broker.clean()
    assert status_of(conn, "a") == "finished"


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_outcome_again_under_another_token_changes_nothing(
    broker: Broker, conn: redis.Redis, hand: Hand, kind: str
) -> None:
    put(broker, "q", "a", "b")
    claimed = hand.take()
    assert hand.tell(claimed, kind, reason="r", delay=5.0) == "ok"
    assert status_of(conn, "a") == STATUS[kind]
    before = _without_memory(everything(conn))
    assert hand.tell(claimed, kind, reason="r", delay=5.0) == "ok"
    assert _without_memory(everything(conn)) == before


def _without_memory(found: dict) -> dict:  # type: ignore[type-arg]
    worker, expires = found["rq:worker:host.1"]
    worker.pop(b"turn")
    return {**found, "rq:worker:host.1": (worker, expires)}


@claim("P6")
@pytest.mark.parametrize("kind", KINDS)
def test_a_stale_worker_is_refused(broker: Broker, conn: redis.Redis, hand: Hand, kind: str) -> None:
    """P6: whose lease ran out and whose job another has may change nothing any more."""
    put(broker, "q", "a")
    old = hand.take()
    may_reap(conn)
    expire_lease(conn, "q", "a")
    assert broker.reap(LEASE, 0) == (1, False)
    job = everything(conn)["rq:job:a"]
    assert hand.tell(old, kind, reason="late") == "stale", "nobody has it yet, and it is not this worker's any more"
    assert everything(conn)["rq:job:a"] == job
    other = Hand(broker, "q", name="host.2")
    held = other.take()
    before = everything(conn)
    assert hand.tell(old, kind, reason="late", fields={"result": "2"}) == "stale"
    assert broker.save_meta("a", "{}", old.execution_id) == "stale"
    assert hand.extend(old) == (True, ["lost"])
    for key in ("rq:job:a", "rq:wip:q", "rq:worker:host.2:jobs", "rq:queue:failed", "rq:finished:q"):
        assert everything(conn).get(key) == before.get(key)
    assert conn.hlen("rq:worker:host.1:jobs") == 0, "what is not held is not listed as held"
    assert other.tell(held) == "ok"
    assert check_conservation(conn, ["a"]) == {"a": "finished"}


def test_an_expired_lease_that_nobody_reaped_still_commits(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """ADR 0010: what expires and is not taken away is still held."""
    put(broker, "q", "a")
    claimed = hand.take()
    expire_lease(conn, "q", "a")
    assert hand.extend(claimed) == (True, ["ok"])
    assert conn.zscore("rq:wip:q", "a") > now_ms(conn)
    expire_lease(conn, "q", "a")
    assert hand.tell(claimed) == "ok"


def test_a_job_that_is_gone(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    conn.delete("rq:job:a")
    assert hand.tell(claimed) == "gone"
    assert not conn.exists("rq:job:a")
    assert conn.hlen("rq:worker:host.1:jobs") == 0


def test_many_outcomes_in_one_turn_stand_or_fall_alone(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b", "c", "d")
    a, b, c, d = hand.claim(4)
    conn.delete("rq:job:b")
    answer = hand.turn(
        outcome(a, fields={"result": "1"}),
        outcome(b),
        outcome(c, "failed", reason="r"),
        outcome(d, "release", reason="r"),
        slots=[0],
    )
    assert answer.answers == ["ok", "gone", "ok", "ok"]
    assert ids(answer.jobs) == ["d"]
    assert check_conservation(conn, "acd") == {"a": "finished", "c": "failed", "d": "started"}
    assert conn.hgetall("rq:worker:host.1:jobs").keys() == {b"d"}


def test_events_are_numbered_without_a_gap_through_every_transition(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", *(f"j{i}" for i in range(6)), ttl=60)
    for kind, claimed in zip(KINDS, hand.claim(6), strict=True):
        hand.tell(claimed, kind, reason="r")
    broker.promote()
    conn.hset("rq:job:j3", "expires_at", 1)
    held = hand.claim(6)
    may_reap(conn)
    expire_lease(conn, "q", *ids(held))
    broker.reap(LEASE, 0)
    broker.cancel(held[0].id)
    broker.requeue(["j1", held[0].id], "n")
    broker.delete(["j0"])
    broker.empty("q")
    found = events_of(conn)
    assert [int(e["n"]) for e in found] == list(range(1, len(found) + 1))
    assert {e["event"] for e in found} == {
        "queued", "processing", "completed", "failed", "retry", "held", "released", "abandoned", "expired", "canceled", "deleted",
    }  # fmt: skip


def test_the_stream_of_events_is_bounded(conn: redis.Redis) -> None:
    broker = Broker(conn, FleetConstants(events_cap=100))
    for i in range(20):
        broker.enqueue("q", [new(f"j{i}-{k}") for k in range(50)], str(i))
    assert conn.xlen("rq:events") < 300
    assert events_of(conn)[-1]["n"] == "1000"


@pytest.mark.parametrize(("kind", "event", "suspect"), [("displaced", "displaced", None), ("suspect", "abandoned", "1")])
def test_a_death_caused_by_another_job_is_not_charged(
    broker: Broker, conn: redis.Redis, hand: Hand, kind: str, event: str, suspect: str | None
) -> None:
    """It goes back to its place at once; and one that may have taken its process down says so until it has an outcome."""
    put(broker, "q", "a", "b")
    for _ in range(SPARED):
        claimed = hand.take()
        assert (claimed.id, claimed.fields.get(b"suspect")) == ("a", suspect and suspect.encode() if _ else None)
        assert hand.tell(claimed, kind, reason="its process died") == "ok"
        assert hand.tell(claimed, kind, reason="its process died") == "ok", "told again"
        found = fields_of(conn, "a")
        assert (found["status"], found["lost"], found.get("attempts"), found.get("suspect")) == ("queued", "0", None, suspect)
        assert events_of(conn, "a")[-1]["event"] == event
    hand.tell(hand.take(), "retry", delay=0.0, reason="ValueError")
    assert {"suspect", "spared"}.isdisjoint(fields_of(conn, "a"))
    assert check_conservation(conn, ["a", "b"]) == {"a": "queued", "b": "queued"}


def _put_back(hand: Hand, broker: Broker, how: str) -> None:
    if how == "worker ended":
        ending = Hand(broker, "q", name="host.2")
        ending.take()
        broker.deregister(ending.name, ending.incarnation)
    else:
        hand.tell(hand.take(), how, reason="its process was killed", fields={"spared": "1"} if how == "release" else {})


@pytest.mark.parametrize("how", ["displaced", "suspect", "release", "worker ended"])
def test_a_begun_job_is_returned_uncharged_five_times_in_a_row(broker: Broker, conn: redis.Redis, hand: Hand, how: str) -> None:
    """Whatever puts it back, it ends some day. An outcome, or a cursor that moved, and the count begins anew."""
    put(broker, "q", "a")
    for _ in range(SPARED):
        _put_back(hand, broker, how)
        assert (status_of(conn, "a"), fields_of(conn, "a").get("lost", "0")) == ("queued", "0")
    _put_back(hand, broker, how)
    found = fields_of(conn, "a")
    assert (found["status"], found["lost"], found["spared"]) == ("queued", "1", "6")
    assert found["reason"].endswith(" (put back too often)")
    assert events_of(conn, "a")[-1]["event"] == "abandoned"
    hand.tell(hand.take(), "retry", delay=0.0, reason="ValueError")
    assert "spared" not in fields_of(conn, "a")
    for _ in range(SPARED):
        _put_back(hand, broker, how)
    hand.tell(hand.take(), "displaced", reason="moved", fields={"cursor": "7"})
    assert (fields_of(conn, "a")["lost"], fields_of(conn, "a")["spared"]) == ("0", "1"), "it got somewhere"
    hand.tell(hand.take())
    assert {"spared", "lost", "reason"}.isdisjoint(fields_of(conn, "a"))


def test_the_answer_says_that_a_job_was_put_back_too_often(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", on_lost="fail")
    begun = {"spared": "1"}
    for _ in range(SPARED):
        assert hand.tell(hand.take(), "release", reason="r", fields=begun) == "ok"
    assert hand.tell(hand.take(), "release", reason="r", fields=begun) == "failed"
    assert status_of(conn, "a") == "failed"


@pytest.mark.parametrize("how", ["displaced", "suspect", "release", "worker ended"])
def test_a_finished_job_forgets_its_uncharged_returns(broker: Broker, conn: redis.Redis, hand: Hand, how: str) -> None:
    put(broker, "q", "a")
    _put_back(hand, broker, how)
    assert fields_of(conn, "a")["spared"] == "1"
    hand.tell(hand.take())
    assert "spared" not in fields_of(conn, "a")


def test_a_job_that_had_not_begun_is_returned_without_limit(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    for _ in range(SPARED + 2):
        hand.tell(hand.take(), "release", reason="no process for it")
    assert {"spared", "lost"}.isdisjoint(fields_of(conn, "a"))


def test_a_suspect_that_finishes_is_none_any_more(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.tell(hand.take(), "suspect", reason="its process died")
    hand.tell(hand.take())
    assert {"suspect", "lost", "reason"}.isdisjoint(fields_of(conn, "a"))


@pytest.mark.parametrize("kind", ["displaced", "suspect"])
def test_one_run_at_most_is_meant_whoever_was_to_blame(broker: Broker, conn: redis.Redis, hand: Hand, kind: str) -> None:
    put(broker, "q", "a", on_lost="fail")
    assert hand.tell(hand.take(), kind, reason="its process died") == "failed"
    assert status_of(conn, "a") == "failed"
    assert "suspect" not in fields_of(conn, "a")
