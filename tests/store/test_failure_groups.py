"""Failed jobs by what went wrong: every way into a group, and out of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from fusion.store.layout.keys import Keys
from fusion.store.layout.records import ClaimFilter
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_groups
from tests.kit import guarded
from tests.kit.hands import LEASE, Hand, events_of, expire_lease, fields_of, may_reap, new, now_ms, outcome, put
from tests.store.kin_hands import child

KEYS = Keys()
FIELDS = {"error_class": "shop.Refused", "error_frame": "shop.orders:send:12"}


def group_of(conn: redis.Redis, job_id: str) -> str:
    return fields_of(conn, job_id).get("failure_group", "")


def about(conn: redis.Redis, group: str) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in conn.hgetall(KEYS.failure(group)).items()}


def members(conn: redis.Redis, group: str) -> list[str]:
    return [raw.decode() for raw in conn.zrange(KEYS.failure_jobs(group), 0, -1)]


def minutes(conn: redis.Redis, group: str) -> int:
    """How many failures are counted by minute."""
    return sum(int(n) for key in conn.scan_iter(f"rq:failure:{group}:[0-9]*") for n in conn.hvals(key))


def fail(broker: Broker, *ids: str, queue: str = "q", hand: Hand | None = None, **fields: str) -> None:
    put(broker, queue, *ids)
    hand = hand or Hand(broker, queue, name=f"host.{ids[0]}")
    for claimed in hand.claim(len(ids), [queue]):
        assert hand.tell(claimed, "failed", reason="shop.Refused: no", fields={**FIELDS, **fields}) == "ok"


# -- in


def _raised(conn: redis.Redis, broker: Broker) -> tuple[str, str]:
    fail(broker, "a")
    return "shop.Refused", "shop.orders:send"


def _said(conn: redis.Redis, broker: Broker) -> tuple[str, str]:
    """What an older worker told, which knew no classes."""
    put(broker, "q", "a", func="shop.send")
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "failed", reason="killed: memory: over 5 MB")
    return "killed", "shop.send"


def _too_late(conn: redis.Redis, broker: Broker) -> tuple[str, str]:
    put(broker, "q", "a")
    hand = Hand(broker, "q")
    conn.hset("rq:job:a", "retry_since", 1)
    hand.tell(hand.take(), "retry", reason="E: x", delay=1.0, fields={**FIELDS, "within": "5"})
    return "shop.Refused", "shop.orders:send"


def _lost(how: str) -> Callable[[redis.Redis, Broker], tuple[str, str]]:
    def lost(conn: redis.Redis, broker: Broker) -> tuple[str, str]:
        put(broker, "q", "a", on_lost="fail", func="shop.send")
        hand = Hand(broker, "q")
        claimed = hand.take()
        conn.hset("rq:job:a", "error_frame", "of an earlier run:f:1")
        may_reap(conn)
        if how == "turn":
            hand.tell(claimed, "lost", reason="killed by signal 9")
        elif how == "reap":
            expire_lease(conn, "q", "a")
            broker.reap(LEASE, 0)
        else:
            broker.prune(LEASE, "host.1")
        return "fusion.exceptions.JobLost", "shop.send"

    return lost


def _vanished(conn: redis.Redis, broker: Broker) -> tuple[str, str]:
    put(broker, "q", "a")
    Hand(broker, "q").take()
    conn.delete("rq:job:a")
    may_reap(conn)
    expire_lease(conn, "q", "a")
    broker.reap(LEASE, 0)
    return "corrupt", ""


def _corrupt(conn: redis.Redis, broker: Broker) -> tuple[str, str]:
    put(broker, "q", "a")
    conn.delete("rq:job:a")
    Hand(broker, "q").claim()
    return "corrupt", ""


def _parent_failed(conn: redis.Redis, broker: Broker) -> tuple[str, str]:
    broker.enqueue("q", [new("parent"), child("a", "parent", func="shop.send")], "n")
    broker.cancel("parent")
    broker.release()
    return "fusion.exceptions.DependencyFailed", "shop.send"


def _parent_failed_at_promote(conn: redis.Redis, broker: Broker) -> tuple[str, str]:
    broker.enqueue("q", [new("parent"), child("a", "parent", func="shop.send")], "n")
    broker.cancel("parent")
    broker.promote()
    return "fusion.exceptions.DependencyFailed", "shop.send"


def _held(conn: redis.Redis, broker: Broker) -> tuple[str, str]:
    broker = Broker(conn, FleetConstants(hold_timeout=0))
    put(broker, "q", "a", func="shop.send")
    Hand(broker, "q").turn(slots=[0], claim_filter=ClaimFilter(lacking={"shop.send": "no such task"}))
    conn.zadd("rq:blocked:q", {"a": 1}, xx=True)
    may_reap(conn)
    broker.reap(LEASE, 0)
    return fields_of(conn, "a").get("error_class", ""), "shop.send"


WAYS_IN = {
    "raised": _raised,
    "said": _said,
    "too late": _too_late,
    **{f"lost, {how}": _lost(how) for how in ("turn", "reap", "prune")},
    "vanished": _vanished,
    "corrupt": _corrupt,
    "parent, release": _parent_failed,
    "parent, promote": _parent_failed_at_promote,
    "held": _held,
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_every_way_to_fail_leads_into_a_group(conn: redis.Redis, broker: Broker, way: str) -> None:
    error_class, frame = WAYS_IN[way](conn, broker)
    assert fields_of(conn, "a")["status"] == "failed"
    group = group_of(conn, "a")
    found = about(conn, group)
    assert (found["error_class"], found["frame"]) == (error_class, frame)
    assert (found["total"], found["example"], members(conn, group), minutes(conn, group)) == ("1", "a", ["a"], 1)
    assert found["first"] == found["last"] == str(int(conn.zscore(KEYS.failures, group)))
    check_groups(conn)


def test_the_line_makes_no_other_group_and_the_function_does(conn: redis.Redis, broker: Broker) -> None:
    fail(broker, "a", error_frame="m:f:1")
    fail(broker, "b", error_frame="m:f:200")
    fail(broker, "c", error_frame="m:g:1")
    assert group_of(conn, "a") == group_of(conn, "b") != group_of(conn, "c")
    assert conn.zcard(KEYS.failures) == 2


def test_deliveries_of_callbacks_stand_in_none(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "a", callback_url="https://x/", hooks=1)
    hand, courier = Hand(broker, "q"), Hand(broker, "_callbacks", name="courier")
    hand.tell(hand.take())
    courier.tell(courier.take(), "failed", reason="503")
    assert conn.zcard(KEYS.failed) == 1
    assert not [*conn.scan_iter("rq:failure*")]
    assert not broker.clean()
    check_groups(conn)


# -- out


def _requeued(conn: redis.Redis, broker: Broker) -> None:
    assert broker.requeue(["a"], "n") == ["ok"]
    assert broker.requeue(["a"], "n") == ["ok"], "a resend"


def _requeued_later(conn: redis.Redis, broker: Broker) -> None:
    assert broker.requeue(["a"], "n", delay=60.0) == ["ok"]


def _deleted(conn: redis.Redis, broker: Broker) -> None:
    assert broker.delete(["a"]) == ["deleted"]


def _forgotten(conn: redis.Redis, broker: Broker) -> None:
    conn.zadd(KEYS.failed, {"a": now_ms(conn) / 1000 - 2.5})
    broker.clean()


def _over_the_cap(conn: redis.Redis, broker: Broker) -> None:
    conn.hset("rq:job:a", "ended_at", "2000")
    conn.zadd(KEYS.failed, {"a": now_ms(conn) / 1000 + 1.5})
    Broker(conn, FleetConstants(failed_max=1)).clean()


def _a_new_life(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "other", "a")


def _a_unique_new_life(conn: redis.Redis, broker: Broker) -> None:
    broker.enqueue("other", [new("a", ties="u", unique_key="k")], "n")


def _vanishes(conn: redis.Redis, broker: Broker) -> None:
    """Its EXPIRE was first, as nobody cleaned: nobody knows of which queue it was."""
    conn.delete("rq:job:a")
    conn.zrem(KEYS.failed, "a")
    broker.clean()
    broker.clean()


def _an_older_requeue(conn: redis.Redis, broker: Broker) -> None:
    conn.zrem(KEYS.failed, "a")
    conn.zadd("rq:queue:q", {"a": 1.5})
    conn.hset("rq:job:a", "status", "queued")
    broker.clean()


WAYS_OUT = [
    _requeued,
    _requeued_later,
    _deleted,
    _forgotten,
    _over_the_cap,
    _a_new_life,
    _a_unique_new_life,
    _vanishes,
    _an_older_requeue,
]


@pytest.mark.parametrize("quarantined", [False, True])
@pytest.mark.parametrize("way", WAYS_OUT)
def test_whatever_takes_a_failed_job_away_takes_it_out_of_its_group(
    conn: redis.Redis, broker: Broker, way: Callable[[redis.Redis, Broker], None], quarantined: bool
) -> None:
    fail(broker, "b", "a")
    if quarantined:
        broker.quarantine(["a", "a"], "why")
        broker.quarantine(["a"], "another reason")
    group = group_of(conn, "a")
    way(conn, broker)
    assert members(conn, group) == ["b"]
    assert about(conn, group)["example"] == "b"
    assert about(conn, group)["total"] == "2", "what has been"
    check_groups(conn)


def test_a_job_that_fails_again_is_counted_again(conn: redis.Redis, broker: Broker) -> None:
    hand = Hand(broker, "q")
    fail(broker, "a", hand=hand)
    group = group_of(conn, "a")
    broker.requeue(["a"], "n")
    assert conn.zscore(KEYS.failures_empty, group)
    claimed = hand.take()
    token = hand.token
    assert hand.tell(claimed, "failed", reason="x", fields=FIELDS) == "ok"
    assert hand.tell(claimed, "failed", reason="x", fields=FIELDS) in ("ok", "stale")
    assert hand.token > token
    assert (about(conn, group)["total"], members(conn, group), minutes(conn, group)) == ("2", ["a"], 2)
    check_groups(conn)


def test_an_older_version_that_requeued_it_leaves_no_second_entry(conn: redis.Redis, broker: Broker) -> None:
    hand = Hand(broker, "q")
    fail(broker, "a", hand=hand)
    conn.hset("rq:job:a", "status", "queued")
    conn.zadd("rq:queue:q", {"a": 1.5})
    hand.tell(hand.take(), "failed", reason="KeyError: x", fields={"error_class": "builtins.KeyError"})
    check_groups(conn)
    assert members(conn, group_of(conn, "a")) == ["a"]


def test_a_broken_key_fails_no_end(conn: redis.Redis, broker: Broker) -> None:
    fail(broker, "b")
    group = group_of(conn, "b")
    for key in (KEYS.failures, KEYS.failures_empty, KEYS.failure(group), KEYS.failure_jobs(group), KEYS.failure_queues(group)):
        conn.delete(key)
        conn.set(key, "junk")
    fail(broker, "a")
    assert broker.requeue(["a"], "n") == ["ok"]
    assert broker.delete(["b"]) == ["deleted"]
    assert not broker.clean()
    assert broker.quarantine(["a"], "r") == ["queued"]


def test_two_at_once(redis_url: str, conn: redis.Redis, broker: Broker) -> None:
    """Jobs fail in two workers, and are put back, set aside, deleted and cleaned meanwhile."""
    names = [f"j{n:02d}" for n in range(40)]
    put(broker, "q", *names)

    def work(nth: int) -> None:
        with guarded.client(redis_url) as own:
            hand = Hand(Broker(own), "q", name=f"host.{nth}")
            for step in range(12):
                jobs = hand.claim(8)
                kinds = [f"E{(nth + step + n) % 3}" for n in range(len(jobs))]
                told = zip(jobs, kinds, strict=True)
                hand.turn(*(outcome(job, "failed", reason="x", fields={"error_class": kind}) for job, kind in told))
                failed = [raw.decode() for raw in own.zrange(KEYS.failed, 0, 9)]
                hand.broker.quarantine(failed[:2], "why")
                hand.broker.requeue(failed[1:6], f"{nth}.{step}")
                hand.broker.delete(failed[6:7])
                hand.broker.clean()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(work, range(2)))
    check_groups(conn)
    groups = [raw.decode() for raw in conn.zrange(KEYS.failures, 0, -1)]
    assert len(groups) == 3
    ever = sum(int(about(conn, group)["total"]) for group in groups)
    assert ever == sum(minutes(conn, group) for group in groups)
    assert ever == [event["event"] for event in events_of(conn)].count("failed")
