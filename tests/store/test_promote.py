"""Scheduled jobs that are due."""

from __future__ import annotations

import redis

from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, events_of, everything, now_ms, put, status_of

SCHEDULED = "rq:scheduler:scheduled_jobs"


def _schedule(broker: Broker, conn: redis.Redis, hand: Hand, *job_ids: str, due: float = 1.0, queue: str = "q") -> None:
    put(broker, queue, *job_ids)
    for claimed in hand.claim(len(job_ids), [queue]):
        hand.tell(claimed, "retry", reason="r", delay=60.0)
        conn.zadd(SCHEDULED, {claimed.id: due})


def test_only_due_jobs_are_promoted(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "q")
    _schedule(broker, conn, hand, "due")
    _schedule(broker, conn, hand, "later", due=now_ms(conn) / 1000 + 20)
    conn.delete("rq:wake:q")
    moved, next_in, *_ = broker.promote()
    assert moved == 1
    assert next_in is not None
    assert 17 < next_in <= 20
    assert check_conservation(conn, ["due", "later"]) == {"due": "queued", "later": "scheduled"}
    assert conn.llen("rq:wake:q") == 1
    assert events_of(conn, "due")[-1]["reason"] == "due"
    conn.expire("rq:job:later", 50)
    conn.zadd(SCHEDULED, {"later": 1})
    assert broker.promote()[:2] == (1, None)
    assert conn.ttl("rq:job:later") == -1


def test_bounded_work_and_nothing_twice(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "q")
    names = [f"j{i:02d}" for i in range(25)]
    _schedule(broker, conn, hand, *names)
    answers = [broker.promote(10)[:2] for _ in range(4)]
    assert answers == [(10, 0.0), (10, 0.0), (5, None), (0, None)]
    assert drain(hand) == names, "each at its old place"
    assert set(check_conservation(conn, names).values()) == {"started"}


def test_a_stale_entry_is_dropped_and_one_without_a_job_is_left_to_whoever_wrote_it(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "q")
    put(broker, "q", "queued", "finished")
    put(broker, "q", "first", priority=2)
    hand.tell(hand.take())
    before = {job_id: everything(conn)[f"rq:job:{job_id}"] for job_id in ("queued", "finished")}
    conn.zadd(SCHEDULED, {"queued": 1, "finished": 1, "missing": 1})
    assert broker.promote()[:2] == (0, None)
    assert {job_id: everything(conn)[f"rq:job:{job_id}"] for job_id in before} == before
    assert conn.zrange(SCHEDULED, 0, -1) == [b"missing"]
    assert not conn.exists("rq:job:missing")


def test_a_broken_queue_keeps_nobody_else_waiting(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "bad", "good")
    _schedule(broker, conn, hand, "b1", "b2", due=1, queue="bad")
    _schedule(broker, conn, hand, "g1", due=2, queue="good")
    conn.set("rq:queue:bad", "junk")
    moved, next_in, _, _ = broker.promote(2)
    assert (moved, next_in) == (0, 0.0)
    moved, next_in, _, _ = broker.promote(2)
    assert moved == 1
    assert next_in is not None
    assert 20 < next_in <= 30, "the broken ones are tried again later"
    assert [status_of(conn, job_id) for job_id in ("b1", "b2", "g1")] == ["scheduled", "scheduled", "queued"]
    conn.delete("rq:queue:bad")
    conn.zadd(SCHEDULED, {"b1": 1, "b2": 1})
    assert broker.promote()[:2] == (2, None)
