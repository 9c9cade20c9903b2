"""A record that went by the net under it (its EXPIRE) leaves its id in a set of ended jobs. A job enqueued with that id again stands in two
sets until `clean` takes the former one's entry: whatever goes by that set does nothing to the job that lives."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import product

import pytest
import redis

from fusion.failed_queue import FailedQueue
from fusion.store.layout.keys import Keys
from fusion.store.read.failure_inspector import FailureInspector
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation, check_groups
from tests.kit.hands import Hand, fields_of, now_ms, put, status_of
from tests.kit.waiting import eventually
from tests.operations.hands import begin, carry_on
from tests.store.kin_hands import child, give
from tests.store.operation_hands import figures

KEYS = Keys()
FIELDS = {"error_class": "shop.Refused", "error_frame": "shop.orders:send:12"}
FORMER = ("finished", "failed", "canceled", "stopped")
LATER = ("queued", "scheduled", "deferred", "started", *FORMER)


def _set(state: str, queue: str) -> str:
    return KEYS.failed if state == "failed" else f"rq:{state}:{queue}"


def _bring(broker: Broker, state: str, queue: str, job_id: str = "a") -> None:
    """A job of that id comes into that state."""
    if state == "scheduled":
        put(broker, queue, job_id, delay=3600)
        return
    if state == "deferred":
        put(broker, queue, "parent")
        give(broker, queue, child(job_id, "parent"))
        return
    put(broker, queue, job_id)
    if state in ("canceled", "stopped"):
        broker.cancel(job_id) if state == "canceled" else broker.stop(job_id)
    elif state != "queued":
        hand = Hand(broker, queue, name=f"host.{secrets.token_hex(4)}")
        claimed = hand.take()
        if state in ("finished", "failed"):
            hand.tell(claimed, state, reason="shop.Refused: no", fields=FIELDS if state == "failed" else {"result": "7"})


def _records(conn: redis.Redis) -> dict[bytes, object]:
    """Of each key of jobs what it holds. The dump of a large hash has its fields in an order that changes by itself."""
    return {key: conn.hgetall(key) if conn.type(key) == b"hash" else conn.dump(key) for key in conn.keys("rq:job:*")}


def _vanished(broker: Broker, conn: redis.Redis, state: str) -> None:
    """A job ended so in the queue q, nobody cleaned for an hour, and its record went by the net under it."""
    _bring(broker, state, "q")
    conn.zadd(_set(state, "q"), {"a": now_ms(conn) / 1000 - 3600.5}, xx=True)
    assert conn.pttl("rq:job:a") > 0
    conn.pexpire("rq:job:a", 1)
    eventually(lambda: not conn.exists("rq:job:a"))


def _clean(conn: redis.Redis, broker: Broker, former: str) -> None:
    while broker.clean():
        pass


def _passes(conn: redis.Redis, broker: Broker) -> None:
    """The first finds what is wrong with a group of failures, the next one counts anew."""
    for _ in range(3):
        _clean(conn, broker, "")


def _trim(conn: redis.Redis, broker: Broker, former: str) -> None:
    """The set is over its cap by one, and the former job's entry is the first."""
    _bring(broker, former, "q", "b")
    conn.zadd(_set(former, "q"), {"a": now_ms(conn) / 1000 + 0.5}, xx=True)
    if conn.hexists("rq:job:a", "ended_at"):
        conn.hset("rq:job:a", "ended_at", "2020-01-01T00:00:00.000000Z")  # none goes within a minute of its end
    Broker(conn, FleetConstants(failed_max=1, finished_max=1, canceled_max=1)).clean()
    assert conn.zrange(_set(former, "q"), 0, -1) == [b"b"]


def _requeue_all(conn: redis.Redis, broker: Broker, former: str) -> None:
    FailedQueue(conn).requeue_all()


def _operate(action: str) -> Callable[[redis.Redis, Broker, str], None]:
    def operate(conn: redis.Redis, broker: Broker, former: str) -> None:
        """All of that state in the queue in which the former job ended: the walk goes by the set."""
        operation = begin(conn, action, f"state:{former} queue:q", **({"reason": "by hand"} if action == "quarantine" else {}))
        assert carry_on(conn, operation) == "done"
        assert figures(conn, operation) == (0, 0, 0)

    return operate


def _empty(conn: redis.Redis, broker: Broker, former: str) -> None:
    broker.empty("q")
    broker.empty_to_trash("q")


def _expire(conn: redis.Redis, broker: Broker, former: str) -> None:
    broker.expire()


WHATEVER = {
    "clean": _clean,
    "over the cap": _trim,
    "requeue --all": _requeue_all,
    "requeue by query": _operate("requeue"),
    "delete by query": _operate("delete"),
    "quarantine by query": _operate("quarantine"),
    "empty": _empty,
    "expire": _expire,
}
#: What an action by a query may be asked of.
ASKED = {"requeue --all": ("failed",), "requeue by query": FORMER[1:], "quarantine by query": ("failed",)}


@pytest.mark.parametrize(("former", "later"), [pair for pair in product(FORMER, LATER) if pair != ("failed", "failed")])
def test_nothing_that_goes_by_the_former_ones_set_touches_the_job(
    conn: redis.Redis, broker: Broker, former: str, later: str
) -> None:
    for what, call in WHATEVER.items():
        if former not in ASKED.get(what, FORMER):
            continue
        conn.flushdb()
        _vanished(broker, conn, former)
        _bring(broker, later, "r")
        assert conn.zscore(_set(former, "q"), "a") is not None, "it stands in two sets"
        before = _records(conn)
        call(conn, broker, former)
        after = {key: found for key, found in _records(conn).items() if key != b"rq:job:b"}
        if what == "over the cap":
            assert after.keys() == before.keys(), what
        else:
            assert after == before, what
        _passes(conn, broker)
        assert status_of(conn, "a") == later, what
        check_conservation(conn, ["a"])


@pytest.mark.parametrize("former", FORMER)
def test_the_job_ends_as_any_other_and_nothing_of_the_former_is_left(conn: redis.Redis, broker: Broker, former: str) -> None:
    _vanished(broker, conn, former)
    _bring(broker, "finished", "q")
    assert fields_of(conn, "a")["result"] == "7"
    _clean(conn, broker, former)
    assert check_conservation(conn, ["a"]) == {"a": "finished"}


def test_a_group_of_failures_counts_it_once(conn: redis.Redis, broker: Broker) -> None:
    """The former job vanished without leaving its group, and the one that lives fails there as well."""
    _vanished(broker, conn, "failed")
    _bring(broker, "failed", "q")
    _passes(conn, broker)
    check_groups(conn)
    (group,) = FailureInspector(conn).groups()
    assert (group.count, dict(group.queues), group.total) == (1, {"q": 1}, 2)
