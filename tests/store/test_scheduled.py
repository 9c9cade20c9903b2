"""Jobs that are enqueued for a time: they wait, are due, and arrive."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime, timezone

import pytest
import redis

from fusion.exceptions import DuplicateJob
from fusion.kernel.timeutil import from_iso
from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from fusion.store.write.queue_calls import waits
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, events_of, everything, fields_of, full_of, new, now_ms, promote_all, put, status_of
from tests.kit.servers import SpawnedServer

SCHEDULED = "rq:scheduler:scheduled_jobs"


def _due_of(conn: redis.Redis, job_id: str) -> float | None:
    return conn.zscore(SCHEDULED, job_id)


def _soon(conn: redis.Redis, seconds: float = 60.0) -> float:
    return now_ms(conn) / 1000 + seconds


def _come(conn: redis.Redis, *job_ids: str) -> None:
    """Their times have come, one after the other."""
    conn.zadd(SCHEDULED, {job_id: i + 1 for i, job_id in enumerate(job_ids)}, xx=True)


# -- enqueued for a time


def test_it_waits_until_it_is_due(broker: Broker, conn: redis.Redis) -> None:
    due = _soon(conn)
    broker.enqueue("q", [new("a", due=due, log_tag="SMS_OTP")], "n")
    hand = Hand(broker, "q")
    assert hand.claim() == []
    assert check_conservation(conn, ["a"]) == {"a": "scheduled"}
    assert _due_of(conn, "a") == round(due, 3)
    found = full_of(conn, "a")
    assert (found["seq"], found["origin"], found["priority"]) == ("", "q", "1")
    assert conn.exists("rq:wake:q") == 0, "no worker is woken for it"
    (event,) = events_of(conn, "a")
    assert (event["event"], event["queue"], event["log_tag"]) == ("scheduled", "q", "SMS_OTP")
    assert from_iso(event["due"]) == datetime.fromtimestamp(round(due * 1000) / 1000, timezone.utc)
    assert Inspector(conn).queue_names() == ["q"]
    moved, next_in, _, _ = broker.promote()
    assert (moved, next_in) == (0, pytest.approx(60, abs=3))
    accepted = found["enqueued_at"]
    _come(conn, "a")
    assert broker.promote()[:2] == (1, None)
    assert conn.lrange("rq:wake:q", 0, -1) == [b"1"]
    found = fields_of(conn, "a")
    assert found["enqueued_at"] > accepted == found["created_at"], "it arrives when it is due"
    assert int(found["seq"]) > 0
    assert drain(hand) == ["a"]
    assert check_conservation(conn, ["a"]) == {"a": "started"}


@pytest.mark.parametrize("ahead", [-3600.0, -0.002, 0.0])
def test_a_job_that_is_already_due_is_queued_at_once(broker: Broker, conn: redis.Redis, ahead: float) -> None:
    past = new("past", due=_soon(conn, ahead))
    accepted = broker.enqueue("q", [past, new("ever", due=-5.0)], "n")
    assert check_conservation(conn, ["past", "ever"]) == {"past": "queued", "ever": "queued"}
    assert [e["event"] for e in events_of(conn)] == ["queued", "queued"]
    assert conn.exists("rq:wake:_scheduler") == 0
    assert conn.llen("rq:wake:q") == 1
    assert not waits(past, accepted)
    assert drain(Hand(broker, "q")) == ["past", "ever"]


def test_a_delay_counts_by_the_servers_clock(broker: Broker, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setattr(time, "time", lambda: 0.0)
    before = now_ms(conn)
    jobs = [new("a", delay=90.5), new("now", delay=0.0), new("less", delay=-5.0, front=True)]
    accepted = broker.enqueue("q", jobs, "n")
    due = _due_of(conn, "a")
    assert due is not None
    assert before + 90_500 <= round(due * 1000) <= now_ms(conn) + 90_500
    assert [waits(job, accepted) for job in jobs] == [True, False, False]
    assert drain(Hand(broker, "q")) == ["less", "now"], "a negative delay is none, and its front stays"
    assert status_of(conn, "a") == "scheduled"


def test_the_answer_tells_whether_it_waits(broker: Broker, conn: redis.Redis) -> None:
    """The producer's answer agrees with what the script did, to the millisecond."""
    for i in range(200):
        job = new(f"j{i}", due=_soon(conn, (i % 5 - 2) / 1000))
        accepted = broker.enqueue("q", [job], f"n{i}")
        assert waits(job, accepted) == (status_of(conn, f"j{i}") == "scheduled")
    assert len(check_conservation(conn, [f"j{i}" for i in range(200)])) == 200


def test_they_arrive_in_the_order_in_which_they_are_due(broker: Broker, conn: redis.Redis) -> None:
    broker.enqueue("q", [new("third", due=_soon(conn, 90)), new("first", due=_soon(conn, 30))], "n1")
    broker.enqueue("q", [new("second", due=_soon(conn, 60)), new("high", 2, due=_soon(conn, 95))], "n2")
    put(broker, "q", "before")
    _come(conn, "first", "second", "third", "high")
    broker.promote()
    put(broker, "q", "behind")
    assert drain(Hand(broker, "q"), 1) == ["high", "before", "first", "second", "third", "behind"]


def test_the_front_once_it_is_due(broker: Broker, conn: redis.Redis) -> None:
    broker.enqueue("q", [new("a", due=_soon(conn), front=True), new("b", delay=60.0, front=True)], "n")
    assert fields_of(conn, "a")["at_front"] == "1"
    put(broker, "q", "waiting")
    _come(conn, "a", "b")
    broker.promote()
    hand = Hand(broker, "q")
    first, second, third = (hand.take() for _ in range(3))
    assert [c.id for c in (first, second, third)] == ["b", "a", "waiting"]
    assert "at_front" not in fields_of(conn, "a")
    hand.tell(second, "retry", reason="r", delay=5.0, fields={"seq": ""})
    put(broker, "q", "c")
    promote_all(broker, conn)
    assert drain(hand, 1) == ["c", "a"], "a retry that gives up its place does not jump the queue"


def test_one_that_was_canceled_and_requeued_has_no_claim_to_the_front(broker: Broker, conn: redis.Redis) -> None:
    broker.enqueue("q", [new("a", due=_soon(conn), front=True)], "n")
    assert broker.cancel("a") == "canceled"
    assert broker.requeue(["a"], "n2") == ["ok"]
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "retry", reason="r", delay=5.0, fields={"seq": ""})
    put(broker, "q", "b")
    promote_all(broker, conn)
    assert drain(hand, 1) == ["b", "a"]


@pytest.mark.parametrize("when", [{"due": 60.0}, {"delay": 60.0}])
def test_the_ttl_begins_when_it_is_due(broker: Broker, conn: redis.Redis, when: dict[str, float]) -> None:
    more = {"due": _soon(conn)} if "due" in when else when
    broker.enqueue("q", [new("a", ttl=5, **more), new("past", ttl=5, due=1.0)], "n")
    due = _due_of(conn, "a")
    assert due is not None
    assert int(fields_of(conn, "a")["expires_at"]) == round(due * 1000) + 5000
    assert int(fields_of(conn, "past")["expires_at"]) == pytest.approx(now_ms(conn) + 5000, abs=2000)
    conn.hset("rq:job:a", "expires_at", 1)
    promote_all(broker, conn)
    assert drain(Hand(broker, "q")) == ["past"], "and is over as any other's"
    assert fields_of(conn, "a")["reason"] == "expired"
    assert check_conservation(conn, ["a"]) == {"a": "canceled"}


# -- the same again


def test_the_same_nonce_is_a_resend(broker: Broker, conn: redis.Redis) -> None:
    jobs = [new("a", due=_soon(conn)), new("b")]
    first = broker.enqueue("q", jobs, "n")
    before = everything(conn, clocks=True)
    assert broker.enqueue("q", jobs, "n") == first
    assert everything(conn, clocks=True) == before
    promote_all(broker, conn)
    assert broker.enqueue("q", jobs, "n") == first, "also once it has arrived"
    assert waits(jobs[0], first)
    assert check_conservation(conn, ["a", "b"]) == {"a": "queued", "b": "queued"}


def test_a_live_id_is_refused_and_nothing_is_accepted(broker: Broker, conn: redis.Redis) -> None:
    broker.enqueue("q", [new("a", due=_soon(conn))], "n")
    put(broker, "q", "b")
    before = everything(conn)
    for taken, status in (("a", "scheduled"), ("b", "queued")):
        with pytest.raises(DuplicateJob, match=status):
            broker.enqueue("q", [new("c", due=_soon(conn)), new(taken, delay=5.0)], "other")
    with pytest.raises(DuplicateJob):
        broker.enqueue("q", [new("d", delay=5.0), new("d")], "other")
    assert everything(conn) == before


def test_an_ended_id_lives_again_and_waits(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "q", "r")
    put(broker, "q", "a", "b", "c")
    for claimed, kind in zip(hand.claim(3), ("finished", "failed", "release"), strict=True):
        hand.tell(claimed, kind, reason="r", fields={"result": "1"})
    broker.cancel("c")
    broker.enqueue("r", [new(job_id, due=_soon(conn)) for job_id in "abc"], "n")
    assert check_conservation(conn, "abc") == dict.fromkeys("abc", "scheduled")
    assert not {"result", "reason", "deliveries", "ended_at"} & set(fields_of(conn, "a"))
    assert conn.ttl("rq:job:a") == -1
    promote_all(broker, conn)
    assert sorted(drain(hand)) == ["a", "b", "c"]


# -- many


def test_a_bulk_of_mixed_times(broker: Broker, conn: redis.Redis) -> None:
    names = [f"j{i:03d}" for i in range(300)]
    times = [{}, {"due": _soon(conn)}, {"due": 1.0}, {"delay": 60.0}, {"front": True}, {"delay": 30.0, "front": True}]
    broker.enqueue("q", [new(job_id, i % 3, **times[i % 6]) for i, job_id in enumerate(names)], "n")  # type: ignore[arg-type]
    states = check_conservation(conn, names)
    assert [states[job_id] for job_id in names[:6]] == ["queued", "scheduled", "queued", "scheduled", "queued", "scheduled"]
    assert list(states.values()).count("queued") == 150
    assert [int(e["n"]) for e in events_of(conn)] == list(range(1, 301))
    hand = Hand(broker, "q")
    first = drain(hand)
    assert len(first) == 150
    _come(conn, *(job_id for job_id in names if states[job_id] == "scheduled"))
    while broker.promote(40)[0]:
        pass
    second = drain(hand)
    assert sorted(first + second) == names, "each once"
    assert set(check_conservation(conn, names).values()) == {"started"}


@pytest.mark.parametrize("broken", ["rq:queue:q", SCHEDULED])
def test_a_bulk_enqueue_that_meets_a_broken_key_accepts_nothing(broker: Broker, conn: redis.Redis, broken: str) -> None:
    conn.set(broken, "junk")
    jobs = [new("a"), new("b", due=_soon(conn)), new("c")]
    for order in (jobs, jobs[1:]):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            broker.enqueue("q", order, "n")
        assert list(conn.scan_iter("rq:job:*")) == []
    assert events_of(conn) == []
    conn.delete(broken)
    broker.enqueue("q", jobs, "n")
    assert check_conservation(conn, "abc") == {"a": "queued", "b": "scheduled", "c": "queued"}


def test_promotion_is_bounded_and_in_order(broker: Broker, conn: redis.Redis) -> None:
    names = [f"j{i:02d}" for i in range(25)]
    broker.enqueue("q", [new(job_id, due=_soon(conn, i + 1)) for i, job_id in enumerate(names)], "n")
    _come(conn, *names)
    assert [broker.promote(10)[:2] for _ in range(4)] == [(10, 0.0), (10, 0.0), (5, None), (0, None)]
    assert drain(Hand(broker, "q"), 1) == names
    assert set(check_conservation(conn, names).values()) == {"started"}


# -- the LIST queue


def test_the_list_queue(broker: Broker, conn: redis.Redis) -> None:
    """Due jobs arrive behind what outsiders and others have put into its inbox before."""
    broker.enqueue("scheduler", [new("later", due=_soon(conn)), new("front", delay=60.0, front=True), new("now")], "n")
    assert check_conservation(conn, ["later", "front", "now"]) == {"later": "scheduled", "front": "scheduled", "now": "queued"}
    promote_all(broker, conn)
    put(broker, "scheduler", "behind")
    assert set(check_conservation(conn, ["later", "front", "now", "behind"]).values()) == {"queued"}
    hand = Hand(broker, "scheduler")
    assert drain(hand, 1) == ["front", "now", "later", "behind"]
    assert set(check_conservation(conn, ["later", "front", "now", "behind"]).values()) == {"started"}


def test_jobs_of_the_list_queue_are_canceled_and_deleted_wherever_they_wait(broker: Broker, conn: redis.Redis) -> None:
    broker.enqueue("scheduler", [new(job_id, delay=60.0) for job_id in "abcd"], "n")
    assert (broker.cancel("a"), broker.delete(["b"])) == ("canceled", ["deleted"])
    promote_all(broker, conn)
    assert (broker.cancel("c"), broker.delete(["d"])) == ("canceled", ["deleted"])
    assert drain(Hand(broker, "scheduler")) == [], "what stands in the inbox still is struck"
    assert conn.exists("rq:queue:scheduler", "rq:fifo:scheduler", "rq:job:b", "rq:job:d") == 0
    assert check_conservation(conn, ["a", "c"]) == {"a": "canceled", "c": "canceled"}


# -- not at all


def test_canceled_and_deleted_while_they_wait(broker: Broker, conn: redis.Redis) -> None:
    broker.enqueue("q", [new(job_id, due=_soon(conn)) for job_id in "abc"], "n")
    assert broker.cancel("a") == "canceled"
    assert broker.delete(["b"]) == ["deleted"]
    assert [e["event"] for e in events_of(conn) if e["job_id"] in "ab"] == ["scheduled", "scheduled", "canceled", "deleted"]
    promote_all(broker, conn)
    assert drain(Hand(broker, "q")) == ["c"]
    assert check_conservation(conn, "ac") == {"a": "canceled", "c": "started"}
    assert conn.exists("rq:job:b", SCHEDULED) == 0


# -- what is broken or full


def test_a_broken_queue_puts_its_due_jobs_off(broker: Broker, conn: redis.Redis) -> None:
    broker.enqueue("bad", [new("b1", due=_soon(conn)), new("b2", due=_soon(conn), front=True)], "n")
    broker.enqueue("good", [new("g1", due=_soon(conn))], "n")
    _come(conn, "b1", "b2", "g1")
    conn.set("rq:queue:bad", "junk")
    assert broker.promote(2)[:2] == (0, 0.0)
    moved, next_in, _, _ = broker.promote(2)
    assert (moved, next_in) == (1, pytest.approx(29.5, abs=1))
    assert [status_of(conn, job_id) for job_id in ("b1", "b2", "g1")] == ["scheduled", "scheduled", "queued"]
    conn.delete("rq:queue:bad")
    _come(conn, "b1", "b2")
    assert broker.promote()[:2] == (2, None)
    assert drain(Hand(broker, "bad"), 1) == ["b2", "b1"]
    assert set(check_conservation(conn, ["b1", "b2"]).values()) == {"started"}


@pytest.mark.parametrize("version", [(7, 0), (6, 2)], ids=["flag", "text for servers before 7"])
def test_a_full_server_refuses_what_is_new_and_moves_what_is_due(
    spawn: Callable[..., SpawnedServer], version: tuple[int, ...]
) -> None:
    conn = spawn("--maxmemory-policy", "noeviction").client()
    broker = Broker(conn, server_version=version)
    names = [f"j{i}" for i in range(20)]
    broker.enqueue("q", [new(job_id, due=_soon(conn)) for job_id in names], "n")
    _come(conn, *names[:10])
    broker.promote(1)
    broker.reschedule(names[-1], _soon(conn, 90))
    before = everything(conn)
    conn.config_set("maxmemory", 1)
    for job in (new("x", due=_soon(conn)), new("x", delay=9.0, ttl=5, front=True)):
        with pytest.raises(redis.OutOfMemoryError):
            broker.enqueue("q", [job, dataclasses.replace(job, id="y", due=None, delay=None)], "n2")
    assert everything(conn) == before
    assert broker.promote()[0] == 9
    assert broker.reschedule(names[-1], _soon(conn, 120)) == "ok"
    assert broker.cancel(names[-1]) == "canceled"
    conn.config_set("maxmemory", 0)
    states = check_conservation(conn, names)
    assert [states[job_id] for job_id in names] == ["queued"] * 10 + ["scheduled"] * 9 + ["canceled"]
    assert conn.exists("rq:job:x", "rq:job:y") == 0
