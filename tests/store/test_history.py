"""What a job remembers of its failed executions, and how a job that is lost again and again comes back."""

from __future__ import annotations

import pytest
import redis

from fusion.jobs.attempts import Attempt, parse_history
from fusion.kernel import defaults
from fusion.kernel.timeutil import from_iso
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import (
    LEASE,
    Hand,
    events_of,
    expire_lease,
    fields_of,
    may_reap,
    now_ms,
    outcome,
    promote_all,
    put,
    status_of,
)


def history(conn: redis.Redis, job_id: str = "a") -> list[Attempt]:
    return parse_history(fields_of(conn, job_id).get("history"))


@pytest.mark.parametrize(("kind", "told"), [("failed", "failed"), ("retry", "retry"), ("lost", "lost"), ("release", "released")])
def test_an_entry_of_each_kind(broker: Broker, conn: redis.Redis, hand: Hand, kind: str, told: str) -> None:
    put(broker, "q", "a")
    known = {"signal": 9, "maxrss": 123456789, "oom": True}
    assert hand.tell(hand.take(), kind, reason="what\nhappened", elapsed=2.0, age=1.0, attempt=known) == "ok"
    (entry,) = history(conn)
    assert (entry.worker, entry.outcome, entry.error) == ("host.1", told, "what\nhappened")
    assert (entry.signal, entry.exit_code, entry.maxrss, entry.oom_likely) == (9, None, 123456789, True)
    assert entry.start and entry.end
    if kind in ("failed", "retry"):
        assert (entry.end - entry.start).total_seconds() == pytest.approx(2.0, abs=0.001)
        assert entry.start == from_iso(fields_of(conn, "a")["started_at"])
    assert "attempt" not in fields_of(conn, "a")
    assert check_conservation(conn, ["a"])


def test_finished_and_held_runs_leave_no_history(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.tell(hand.take(), "held", reason="unknown")
    promote_all(broker, conn)
    hand.tell(hand.take())
    assert "history" not in fields_of(conn, "a")


def test_deaths_reported_by_others_are_recorded(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """The reaper, a supervisor that saw the worker die, and the worker's own farewell."""
    put(broker, "q", "a")
    may_reap(conn)
    hand.take()
    expire_lease(conn, "q", "a")
    broker.reap(LEASE, 0)
    hand.take()
    broker.prune(LEASE, "host.1")
    promote_all(broker, conn)
    other = Hand(broker, "q", name="host.2", alone=True)
    other.take()
    broker.deregister("host.2", other.incarnation)
    first, second, third = history(conn)
    assert [e.outcome for e in (first, second, third)] == ["lost", "lost", "released"]
    assert "lease expired" in first.error
    assert "host.1 died" in second.error
    assert third.worker == "host.2"


def test_a_canceled_run_is_one_too(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    broker.cancel("a")
    hand.tell(claimed, "retry", reason="E: x", attempt={"maxrss": 5})
    (entry,) = history(conn)
    assert (status_of(conn, "a"), entry.outcome, entry.maxrss) == ("canceled", "canceled", 5)
    assert "attempt" not in fields_of(conn, "a")


def test_the_history_is_bounded_and_survives_success_and_requeue(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    for n in range(13):
        hand.tell(hand.take(), "retry", reason=f"E{n}: " + "x" * 5000)
        promote_all(broker, conn)
    found = history(conn)
    assert [e.error.partition(":")[0] for e in found] == [f"E{n}" for n in range(3, 13)]
    assert len(fields_of(conn, "a")["history"]) < 10 * 1300
    hand.tell(hand.take(), "failed", reason="last")
    broker.requeue(["a"], "n")
    hand.tell(hand.take())
    assert history(conn)[-1].error == "last"
    assert len(history(conn)) == 10


def test_garbage_in_the_history_stops_nothing(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    conn.hset("rq:job:a", "history", "\n\njunk\n\xff")
    claimed = hand.take()
    commit = outcome(claimed, "retry", reason=b"\xff bytes", fields={"attempt": "{junk"})
    assert hand.turn(commit).answers == ["ok"]
    assert [e.outcome for e in history(conn)] == ["retry"]


def test_sent_twice_it_is_one_entry(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    commit = outcome(hand.take(), "retry", reason="E")
    for token in (None, 2):
        assert hand.turn(commit, token=token).answers == ["ok"]
    assert hand.turn(commit).answers == ["ok"], "another turn with the same outcome"
    assert len(history(conn)) == 1
    assert fields_of(conn, "a")["attempts"] == "1"


def test_a_waiting_retry_shows_its_reason(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.tell(hand.take(), "failed", reason="first", fields={"error_class": "A", "error_bases": "B", "error_frame": "m:f:1"})
    broker.requeue(["a"], "n")
    assert not {"reason", "error_class", "error_bases", "error_frame"} & set(fields_of(conn, "a"))
    hand.tell(hand.take(), "retry", delay=60.0, reason="C: again", fields={"error_class": "C", "error_frame": "m:f:2"})
    found = fields_of(conn, "a")
    assert (found["status"], found["reason"], found["error_class"]) == ("scheduled", "C: again", "C")
    promote_all(broker, conn)
    hand.tell(hand.take(), "failed", reason="D: died", fields={"error_class": "D"})
    assert "error_frame" not in fields_of(conn, "a"), "the place of another error"


def test_lost_once_at_once_then_with_growing_pauses(conn: redis.Redis) -> None:
    broker = Broker(conn, FleetConstants(max_lost=12))
    hand = Hand(broker, "q", alone=True)
    put(broker, "q", "pill")
    pauses = []
    for n in range(1, 12):
        hand.tell(hand.take(), "lost", reason="SIGKILL")
        due = conn.zscore("rq:scheduler:scheduled_jobs", "pill")
        pauses.append(0 if due is None else due - now_ms(conn) / 1000)
        assert check_conservation(conn, ["pill"]) == {"pill": "queued" if n == 1 else "scheduled"}
        assert abs(int(events_of(conn, "pill")[-1]["delay_ms"]) / 1000 - pauses[-1]) < 0.5
        assert fields_of(conn, "pill")["reason"] == "SIGKILL"
        put(broker, "q", "next")
        promote_all(broker, conn)
        assert conn.zrevrange("rq:queue:q", 0, 0) == [b"pill"], "at its place"
        broker.delete(["next"])
    assert pauses[0] == 0
    for pause, middle in zip(pauses[1:], [1, 2, 4, 8, 16, 32, 64, 64, 64, 64], strict=True):
        assert 0.4 * middle <= pause <= 1.5 * middle
    assert len({round(pause, 1) for pause in pauses[-4:]}) > 1, "not the same for all"


def test_a_poison_pill_says_what_it_is(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    conn.hset("rq:job:a", mapping={"lost": defaults.MAX_LOST - 1, "error_frame": "m:f:1"})
    hand.tell(hand.take(), "lost", reason="SIGKILL")
    found = fields_of(conn, "a")
    assert (found["status"], found["error_class"], "error_frame" in found) == ("failed", "fusion.exceptions.JobLost", False)
    assert history(conn)[-1].outcome == "lost"
