"""Leases and the signs of life of a worker."""

from __future__ import annotations

import redis

from fusion.kernel.timeutil import from_iso
from fusion.store.write.broker import Broker
from tests.kit.hands import LEASE, Hand, everything, expire_lease, now_ms, outcome, put, wire


def test_all_leases_of_a_batch_in_one_round_trip(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b")
    put(broker, "r", "c")
    hand = Hand(broker, "q", "r")
    held = hand.claim(3)
    hand.extend()
    for queue in "qr":
        expire_lease(conn, queue, "a", "b", "c")
    before = now_ms(conn)
    with wire(conn) as sent:
        assert hand.extend(*held) == (True, ["ok", "ok", "ok"])
    assert sent == ["EVALSHA"]
    for queue, job_id in (("q", "a"), ("q", "b"), ("r", "c")):
        assert before + LEASE * 1000 <= conn.zscore(f"rq:wip:{queue}", job_id) <= now_ms(conn) + LEASE * 1000


def test_a_renewal_returns_lost_and_canceled_jobs(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "kept", "canceled", "finished", "deleted")
    hand = Hand(broker, "q")
    kept, canceled, finished, deleted = hand.claim(4)
    broker.cancel("canceled")
    hand.tell(finished)
    conn.delete("rq:job:deleted")
    assert hand.extend(kept, canceled, finished, deleted) == (True, ["ok", "canceled", "lost", "lost"])
    assert conn.zscore("rq:wip:q", "canceled") > now_ms(conn), "it runs on"
    assert conn.zscore("rq:wip:q", "finished") is None, "and what has ended gets no lease again"


def test_another_execution_is_not_extended(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    hand = Hand(broker, "q")
    old = hand.take()
    hand.turn(outcome(old, "release", reason="r"))
    other = Hand(broker, "q", name="host.2")
    other.take()
    conn.zadd("rq:wip:q", {"a": 5})
    assert hand.extend(old) == (True, ["lost"])
    assert conn.zscore("rq:wip:q", "a") == 5


def test_a_renewal_is_the_heartbeat_of_the_worker(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "q")
    conn.hset("rq:worker:host.1", mapping={"beat_ms": 1, "last_heartbeat": "old"})
    conn.expire("rq:worker:host.1", 5)
    assert hand.extend(state="idle") == (True, [])
    found = conn.hgetall("rq:worker:host.1")
    assert now_ms(conn) - int(found[b"beat_ms"]) < 1000
    assert from_iso(found[b"last_heartbeat"]) is not None
    assert found[b"state"] == b"idle"
    assert conn.ttl("rq:worker:host.1") > 400


def test_a_worker_without_a_registration_learns_of_it_and_keeps_its_leases(broker: Broker, conn: redis.Redis) -> None:
    """A clock jump drops every TTL at once; the jobs under way must not die of it."""
    put(broker, "q", "a")
    hand = Hand(broker, "q")
    claimed = hand.take()
    conn.delete("rq:worker:host.1")
    expire_lease(conn, "q", "a")
    assert hand.extend(claimed) == (False, ["ok"])
    assert conn.zscore("rq:wip:q", "a") > now_ms(conn)
    assert not conn.exists("rq:worker:host.1")


def test_a_broken_key_of_one_queue_leaves_the_others_their_leases(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "bad", "b")
    put(broker, "good", "g")
    hand = Hand(broker, "bad", "good")
    b, g = hand.claim(2)
    conn.delete("rq:wip:bad")
    conn.set("rq:wip:bad", "junk")
    expire_lease(conn, "good", "g")
    registered, answers = hand.extend(b, g)
    assert registered
    assert answers[0].startswith("error: WRONGTYPE")
    assert answers[1] == "ok"
    assert conn.zscore("rq:wip:good", "g") > now_ms(conn)


def test_a_resend_changes_nothing(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    hand = Hand(broker, "q")
    claimed = hand.take()
    first = hand.extend(claimed)
    before = everything(conn)
    assert hand.extend(claimed) == first
    assert everything(conn) == before
