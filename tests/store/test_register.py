"""Who is in the list of workers, under which name."""

from __future__ import annotations

import redis

from fusion.kernel.timeutil import from_iso
from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import LEASE, Hand, drain, events_of, everything, fields_of, may_reap, now_ms, put, status_of


def test_the_fields_of_a_registration(broker: Broker, conn: redis.Redis) -> None:
    assert broker.register("host.1", "inc", LEASE, 420, {"queues": "q,r", "pid": 7, "hostname": "host", "version": None})
    found = {k.decode(): v.decode() for k, v in conn.hgetall("rq:worker:host.1").items()}
    times = found.pop("birth"), found.pop("last_heartbeat")
    assert times[0] == times[1]
    assert from_iso(times[0]) is not None
    assert abs(int(found.pop("beat_ms")) - now_ms(conn)) < 2000
    assert found == {
        "incarnation": "inc", "schema": "2", "lease_ms": "30000", "state": "started", "queues": "q,r", "pid": "7", "hostname": "host",
    }  # fmt: skip
    assert conn.smembers("rq:workers") == {b"rq:worker:host.1"}
    assert 400 < conn.ttl("rq:worker:host.1") <= 420


def test_a_live_others_name_is_taken(broker: Broker, conn: redis.Redis) -> None:
    Hand(broker, "q")
    before = everything(conn)
    assert not broker.register("host.1", "other", LEASE, 420, {})
    assert everything(conn) == before


def test_a_dead_others_name_is_free_once_its_jobs_are_given_back(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    old = Hand(broker, "q")
    claimed = old.take()
    conn.hset("rq:worker:host.1", "beat_ms", 1)
    assert not broker.register("host.1", "new", LEASE, 420, {}), "its job would be nobody's"
    may_reap(conn)
    assert broker.prune(LEASE) == [("host.1", 1)]
    new = Hand(broker, "q")
    assert old.turn(slots=[0]).status == "unregistered"
    assert [job.id for job in new.claim()] == ["a"]
    assert new.tell(claimed) == "stale"


def test_a_dead_others_name_without_jobs_is_free(broker: Broker, conn: redis.Redis) -> None:
    old = Hand(broker, "q")
    old.turn()
    conn.hset("rq:worker:host.1", mapping={"beat_ms": 1, "current_job": "x"})
    new = Hand(broker, "q")
    found = conn.hgetall("rq:worker:host.1")
    assert found[b"incarnation"].decode() == new.incarnation
    assert b"turn" not in found
    assert b"current_job" not in found


def test_jobs_left_under_a_name_that_vanished_are_found_by_prune(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    Hand(broker, "q").take()
    conn.delete("rq:worker:host.1", "rq:workers")
    assert not broker.register("host.1", "new", LEASE, 420, {})
    may_reap(conn)
    assert broker.prune(LEASE) == [("host.1", 1)]
    assert broker.register("host.1", "new", LEASE, 420, {})
    assert status_of(conn, "a") == "queued"


def test_the_same_worker_again(broker: Broker, conn: redis.Redis) -> None:
    """A resend, or a registration that expired under it: its jobs and its last token stay its own."""
    put(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    claimed = hand.take()
    before = everything(conn)
    assert broker.register("host.1", hand.incarnation, LEASE, 420, {"queues": "q"})
    assert everything(conn) == before
    assert hand.turn(slots=[0], token=1).jobs == [claimed]
    conn.delete("rq:worker:host.1")
    assert broker.register("host.1", hand.incarnation, LEASE, 420, {"queues": "q"})
    assert hand.tell(claimed) == "ok"
    assert [job.id for job in hand.claim()] == ["b"]


def test_leaving_gives_everything_back_with_the_attempt_unspent(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b", "c", "canceled", "broken")
    hand = Hand(broker, "q")
    hand.claim(5)
    broker.cancel("canceled")
    conn.delete("rq:job:broken")
    conn.set("rq:job:broken", "junk")
    assert broker.deregister("host.1", hand.incarnation) == 4
    assert check_conservation(conn, ["a", "b", "c", "canceled"]) == {
        "a": "queued", "b": "queued", "c": "queued", "canceled": "canceled",
    }  # fmt: skip
    assert not {"lost", "attempts"} & set(fields_of(conn, "a"))
    assert events_of(conn, "a")[-1]["event"] == "released"
    assert conn.exists("rq:worker:host.1", "rq:worker:host.1:jobs", "rq:workers") == 0
    assert broker.deregister("host.1", hand.incarnation) == 0, "again does no harm"
    assert drain(Hand(broker, "q", name="host.2"), 1) == ["a", "b", "c"]


def test_leaving_under_a_name_that_is_anothers_by_now(broker: Broker, conn: redis.Redis) -> None:
    old = Hand(broker, "q")
    conn.hset("rq:worker:host.1", "beat_ms", 1)
    new = Hand(broker, "q")
    put(broker, "q", "a")
    claimed = new.take()
    assert broker.deregister("host.1", old.incarnation) == 0
    assert new.tell(claimed) == "ok"


def test_the_queues_and_types_a_worker_asks_for_at_its_start(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    put(broker, "sms", "b")
    conn.sadd("rq:queues", "rq:queue:_internal")
    assert Inspector(conn).queue_names() == ["q", "sms"]
    assert broker.wrong_types(["q", "sms", "new", "scheduler"]) == ([], [])
    conn.rpush("rq:queue:bad", "x")
    conn.set("rq:queue:scheduler", "x")
    wrong, lists = broker.wrong_types(["q", "bad", "scheduler"])
    assert wrong == ["rq:queue:scheduler is a string, not a list"]
    assert lists == ["bad"]
