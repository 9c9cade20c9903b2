"""Jobs of the dead: found by their leases (`reap`) or by their worker's silence (`prune`), and never those of the living."""

from __future__ import annotations

import pytest
import redis

from fusion.kernel import defaults
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
    now_ms,
    promote_all,
    put,
    status_of,
)


@pytest.fixture
def hand(broker: Broker, conn: redis.Redis) -> Hand:
    """A worker in a fleet that is looked after."""
    may_reap(conn)
    return Hand(broker, "q", "r")


def test_an_expired_lease_gives_the_job_back_to_its_place(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "first", "second", "third")
    hand.claim(2)
    expire_lease(conn, "q", "first")
    conn.delete("rq:wake:q")
    assert broker.reap(LEASE, 0) == (1, False)
    found = fields_of(conn, "first")
    assert (found["status"], found["lost"], found["deliveries"]) == ("queued", "1", "1")
    assert not {"execution_id", "attempts"} & set(found)
    assert conn.llen("rq:wake:q") == 1
    assert conn.hkeys("rq:worker:host.1:jobs") == [b"second"]
    event = events_of(conn, "first")[-1]
    assert (event["event"], event["worker"], event["lost"]) == ("abandoned", "host.1", "1")
    assert check_conservation(conn, ["first", "second", "third"])["second"] == "started"
    assert drain(Hand(broker, "q", name="host.2"), 1) == ["first", "third"]


def test_a_lease_that_runs_is_left_alone(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.take()
    before = everything(conn)
    assert broker.reap(LEASE, 0) == (0, False)
    assert everything(conn)["rq:job:a"] == before["rq:job:a"]


def test_the_poison_cap_counts_lost_leases(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "pill")
    hand = Hand(broker, "q", name="host.2", alone=True)
    for _ in range(defaults.MAX_LOST):
        hand.take()
        expire_lease(conn, "q", "pill")
        broker.reap(LEASE, 0)
        promote_all(broker, conn)
    found = fields_of(conn, "pill")
    assert (found["status"], found["lost"]) == ("failed", str(defaults.MAX_LOST))
    assert "poison pill" in found["reason"]
    assert check_conservation(conn, ["pill"]) == {"pill": "failed"}
    assert broker.requeue(["pill"], "n") == ["ok"]
    assert fields_of(conn, "pill")["lost"] == "0"


@pytest.mark.parametrize(
    ("cancel", "on_lost", "expected"), [(True, "fail", "canceled"), (True, None, "canceled"), (False, "fail", "failed")]
)
@pytest.mark.parametrize("way", ["reap", "prune"])
def test_a_pending_cancel_wins_then_on_lost(
    broker: Broker, conn: redis.Redis, hand: Hand, cancel: bool, on_lost: str | None, expected: str, way: str
) -> None:
    put(broker, "q", "a", on_lost=on_lost)
    hand.take()
    if cancel:
        broker.cancel("a")
    if way == "reap":
        expire_lease(conn, "q", "a")
        broker.reap(LEASE, 0)
    else:
        assert broker.prune(LEASE, "host.1") == [("host.1", 1)]
    assert check_conservation(conn, ["a"]) == {"a": expected}
    assert "exc_info" in fields_of(conn, "a") or expected == "canceled"


def test_bounded_work_over_all_queues_goes_on_at_once(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """ADR 0012, P7: what one call leaves over does not wait for the next interval."""
    for queue in ("q", "r"):
        names = [f"{queue}{i:02d}" for i in range(15)]
        put(broker, queue, *names)
    held = hand.claim(30)
    for queue in ("q", "r"):
        expire_lease(conn, queue, *ids(held))
    answers = [broker.reap(LEASE, 5.0, limit=10) for _ in range(4)]
    assert answers[0] == (0, False), "somebody looked within the interval"
    conn.hset("rq:reap", "last", now_ms(conn) - 5000)
    answers = [broker.reap(LEASE, 5.0, limit=10) for _ in range(4)]
    assert [count for count, _ in answers] == [10, 10, 10, 0]
    assert [again for _, again in answers[:2]] == [True, True]
    assert conn.zcard("rq:wip:q") + conn.zcard("rq:wip:r") == 0


def test_only_one_of_a_fleet_looks_in_each_interval(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.take()
    expire_lease(conn, "q", "a")
    assert broker.reap(LEASE, 5.0) == (0, False)
    assert broker.reap(LEASE, 0.0) == (1, False)


def test_queues_that_fell_out_of_the_list_are_looked_at_too(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.take()
    expire_lease(conn, "q", "a")
    conn.delete("rq:queues", "rq:leases")
    assert broker.reap(LEASE, 0) == (0, False)
    assert broker.reap(LEASE, 0, ["q"]) == (1, False)


@pytest.mark.parametrize("last", ["never", "long ago", "in the future"])
def test_after_an_outage_it_holds_off_one_lease(broker: Broker, conn: redis.Redis, hand: Hand, last: str) -> None:
    """ADR 0016: leases ran out while nobody could renew them; the living must have time to."""
    put(broker, "q", "a")
    claimed = hand.take()
    expire_lease(conn, "q", "a")
    conn.delete("rq:reap")
    if last != "never":
        conn.hset("rq:reap", "last", now_ms(conn) + (3_600_000 if last == "in the future" else -int(LEASE * 500) - 100))
    assert broker.prune(LEASE) == [], "the silent are not buried either"
    assert broker.reap(LEASE, 0) == (0, False)
    hold = int(conn.hget("rq:reap", "hold"))
    assert hold == pytest.approx(now_ms(conn) + LEASE * 1000, abs=2000)
    assert broker.reap(LEASE, 0) == (0, False)
    assert int(conn.hget("rq:reap", "hold")) == hold, "looking again does not put it off"
    assert hand.extend(claimed) == (True, ["ok"])
    conn.hset("rq:reap", "hold", now_ms(conn))
    assert broker.reap(LEASE, 0) == (0, False)
    assert status_of(conn, "a") == "started"


def test_a_hold_that_a_clock_set_back_put_far_away_is_one_lease_at_most(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    conn.hset("rq:reap", mapping={"last": now_ms(conn), "hold": now_ms(conn) + 7_200_000})
    broker.reap(LEASE, 0)
    assert int(conn.hget("rq:reap", "hold")) <= now_ms(conn) + LEASE * 1000


def test_a_lease_too_far_in_the_future_counts_as_expired(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """Written before the clock went back two hours, it would hold its job for as long."""
    put(broker, "q", "far", "near")
    hand.claim(2)
    conn.zadd("rq:wip:q", {"far": now_ms(conn) + 7_200_000, "near": now_ms(conn) + int(LEASE * 1900)})
    conn.zadd("rq:leases", {"q": now_ms(conn) + 7_200_000})
    assert broker.reap(LEASE, 0) == (1, False)
    assert (status_of(conn, "far"), status_of(conn, "near")) == ("queued", "started")


def test_the_longest_lease_in_use_decides_what_is_too_far(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    patient = Hand(broker, "q", name="patient.1", lease=600.0)
    put(broker, "q", "a")
    patient.take()
    assert broker.reap(LEASE, 0) == (0, False)
    assert status_of(conn, "a") == "started"


def test_a_lease_without_a_started_job_is_dropped(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "waiting", "done")
    hand.tell(hand.take())
    conn.zadd("rq:wip:q", {"waiting": 1e12, "done": 1e12})
    conn.zadd("rq:leases", {"q": 1})
    before = {job_id: everything(conn)[f"rq:job:{job_id}"] for job_id in ("waiting", "done")}
    assert broker.reap(LEASE, 0) == (0, False)
    assert conn.zcard("rq:wip:q") == 0
    assert {job_id: everything(conn)[f"rq:job:{job_id}"] for job_id in before} == before


def test_a_broken_queue_does_not_keep_others_from_their_jobs(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    for queue in ("q", "r"):
        put(broker, queue, f"{queue}1", f"{queue}2")
    hand.claim(4)
    for queue in ("q", "r"):
        expire_lease(conn, queue, "q1", "q2", "r1", "r2")
    conn.set("rq:queue:q", "junk")
    assert sum(broker.reap(LEASE, 0, limit=3)[0] for _ in range(2)) == 2
    assert [status_of(conn, job_id) for job_id in ("q1", "q2", "r1", "r2")] == ["started", "started", "queued", "queued"]
    conn.delete("rq:queue:q")
    expire_lease(conn, "q", "q1", "q2")
    assert broker.reap(LEASE, 0) == (2, False)


# -- prune


def test_a_worker_seen_dying_is_buried_at_once(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    claimed = hand.take()
    conn.delete("rq:reap")
    assert broker.prune(LEASE, "host.1") == [("host.1", 1)]
    assert (status_of(conn, "a"), fields_of(conn, "a")["lost"]) == ("queued", "1")
    assert events_of(conn, "a")[-1]["reason"] == "worker host.1 died"
    assert conn.exists("rq:worker:host.1", "rq:worker:host.1:jobs", "rq:workers") == 0
    assert broker.prune(LEASE, "host.1") == [("host.1", 0)], "again does no harm"
    assert hand.turn().status == "unregistered"
    assert broker.register("host.1", hand.incarnation, LEASE, 420, {})
    assert hand.tell(claimed) == "stale"


def test_only_the_incarnation_that_was_seen_dying_is_buried(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", on_lost="fail")
    hand.take()
    assert broker.prune(LEASE, "host.1", incarnation="an older one", reason="ProcessExitError: gone") == []
    assert status_of(conn, "a") == "started"
    assert conn.exists("rq:worker:host.1")
    assert broker.prune(LEASE, "host.1", incarnation=hand.incarnation, reason="ProcessExitError: gone") == [("host.1", 1)]
    assert fields_of(conn, "a")["reason"] == 'ProcessExitError: gone (on_lost="fail") [FUS-152]'
    assert not conn.exists("rq:worker:host.1")


def test_jobs_of_an_expired_worker_entry_are_given_back(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.take()
    conn.delete("rq:worker:host.1")
    assert broker.prune(LEASE, "host.1", incarnation=hand.incarnation) == [("host.1", 1)]
    assert status_of(conn, "a") == "queued"


def test_silence_for_a_lease_is_death(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b", "c")
    hand.take()
    silent, vanished = Hand(broker, "q", name="host.2"), Hand(broker, "q", name="host.3")
    silent.take()
    vanished.take()
    conn.hset("rq:worker:host.2", "beat_ms", now_ms(conn) - int(LEASE * 1000) - 1)
    conn.delete("rq:worker:host.3")
    assert sorted(broker.prune(LEASE)) == [("host.2", 1), ("host.3", 1)]
    assert [status_of(conn, job_id) for job_id in "abc"] == ["started", "queued", "queued"]
    assert conn.smembers("rq:workers") == {b"rq:worker:host.1"}
    assert broker.prune(LEASE) == []


def test_a_worker_with_a_longer_lease_may_be_silent_longer(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    Hand(broker, "q", name="patient.1", lease=600.0)
    conn.hset("rq:worker:patient.1", "beat_ms", now_ms(conn) - 500_000)
    assert broker.prune(LEASE) == []


def test_only_what_the_dead_still_holds_is_given_back(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    a, b = hand.claim(2)
    conn.hset("rq:worker:host.1:jobs", "a", "someone-else:1:1")
    assert broker.prune(LEASE, "host.1") == [("host.1", 1)]
    assert (status_of(conn, a.id), status_of(conn, b.id)) == ("started", "queued")


def test_pruning_is_bounded(broker: Broker, conn: redis.Redis) -> None:
    may_reap(conn)
    for i in range(5):
        Hand(broker, "q", name=f"host.{i}")
        conn.hset(f"rq:worker:host.{i}", "beat_ms", 1)
    assert [len(broker.prune(LEASE, limit=2)) for _ in range(4)] == [2, 2, 1, 0]
