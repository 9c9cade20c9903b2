"""Locks of task code: what holds one, who gets it next, and that whatever ends the run that has it frees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from fusion.store.access import limit_inspector_of
from fusion.store.layout.records import Claimed
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from tests.kit.hands import LEASE, Hand, events_of, expire_lease, fields_of, ids, may_reap, new, put, status_of
from tests.store.limits_hands import give, holders, tied, waiting


def want(broker: Broker, job: Claimed, name: str = "k", call: str = "c", *, last: bool = False) -> str:
    """The run of a job asks for a lock; the answer, without its place in line."""
    return broker.lock(name, job.id, job.execution_id, call, last=last).partition(" ")[0]


def give_back(broker: Broker, job: Claimed, name: str = "k", call: str = "c") -> bool:
    return broker.unlock(name, job.id, job.execution_id, call)


def running(broker: Broker, *names: str, queue: str = "q") -> tuple[Hand, list[Claimed]]:
    for name in names:
        put(broker, queue, name)
    hand = Hand(broker, queue)
    return hand, hand.claim(len(names))


def traces(conn: redis.Redis) -> list[bytes]:
    """What is left of locks and slots in Redis."""
    return sorted(key for kind in ("held", "waiting", "locks") for key in conn.scan_iter(f"rq:limits:{kind}:*"))


def test_one_run_has_a_lock_and_the_next_in_line_gets_it(conn: redis.Redis, broker: Broker) -> None:
    _, (a, b, c) = running(broker, "a", "b", "c")
    first = int(want(broker, a))
    assert [broker.lock("k", one.id, one.execution_id, "c") for one in (c, b, c)] == ["waits 1", "waits 2", "waits 1"]
    assert want(broker, c, last=True) == "timeout"
    assert [broker.lock("k", one.id, one.execution_id, "c") for one in (c, b)] == ["waits 2", "waits 1"]
    assert give_back(broker, a)
    assert want(broker, c) == "waits", "b came before it"
    second = int(want(broker, b))
    assert give_back(broker, b)
    third = int(want(broker, c))
    assert first < second < third
    assert give_back(broker, c)
    assert traces(conn) == []
    assert all(conn.hmget(f"rq:job:{one}", "ties", "locks") == [None, None] for one in "abc")


def test_the_view_of_a_key_counts_the_runs_that_wait_for_its_lock(conn: redis.Redis, broker: Broker) -> None:
    inspector = limit_inspector_of(conn)

    def seen() -> tuple[int, int]:
        (info,) = inspector.limits(["k"])
        return (info.held, info.lock_waiting) if info else (0, 0)

    _, (a, b, c) = running(broker, "a", "b", "c")
    for one, expected in ((a, (1, 0)), (b, (1, 1)), (c, (1, 2))):
        want(broker, one)
        assert seen() == expected
    for one, expected in ((b, (1, 1)), (a, (1, 0)), (c, (0, 0))):
        assert give_back(broker, one)
        assert seen() == expected


def test_the_first_in_line_waits_too_while_a_job_of_the_key_has_the_slot(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "keyed", "job")
    assert ids(Hand(broker, "keyed", name="host.2").claim(1)) == ["job"]
    _, (run,) = running(broker, "run")
    assert want(broker, run) == "waits"
    (info,) = limit_inspector_of(conn).limits(["k"])
    assert info is not None
    assert (info.active, info.blocked, info.lock_waiting) == (1, 1, 1)


def test_a_run_that_asks_again_gets_the_same_answer(conn: redis.Redis, broker: Broker) -> None:
    _, (a, b) = running(broker, "a", "b")
    number = want(broker, a)
    assert want(broker, a) == number
    assert want(broker, a, call="other") == "again"
    assert (want(broker, b), want(broker, b, call="other")) == ("waits", "again")
    assert not give_back(broker, a, call="other"), "a call gives back its own lock alone"
    assert give_back(broker, a)
    assert not give_back(broker, a), "a resend"
    assert int(want(broker, b)) > int(number)


def test_who_waits_no_longer_leaves_the_line(conn: redis.Redis, broker: Broker) -> None:
    _, (a, b, c) = running(broker, "a", "b", "c")
    assert int(want(broker, a))
    assert (want(broker, b), want(broker, c)) == ("waits", "waits")
    assert want(broker, b, last=True) == "timeout"
    assert give_back(broker, a)
    assert int(want(broker, c))
    assert want(broker, b, last=True) == "timeout"
    assert conn.hget("rq:job:b", "locks") is None
    assert not give_back(broker, b)


def test_a_lock_and_a_job_of_the_key_exclude_each_other(conn: redis.Redis, broker: Broker) -> None:
    hand, (a,) = running(broker, "a")
    number = want(broker, a)
    give(broker, "q", "keyed1", "keyed2")
    assert [status_of(conn, one) for one in ("keyed1", "keyed2")] == ["blocked", "blocked"]
    assert hand.claim(2) == []
    assert give_back(broker, a)
    assert status_of(conn, "keyed1") == "queued"
    assert int(want(broker, a, call="d")) > int(number), "it runs, and is ahead of a job that has not started"
    assert status_of(conn, "keyed1") == "blocked"
    assert give_back(broker, a, call="d")
    keyed1 = hand.take()
    assert (keyed1.id, want(broker, a, call="e")) == ("keyed1", "waits")
    hand.tell(keyed1)
    assert int(want(broker, a, call="e"))
    assert status_of(conn, "keyed2") == "blocked", "in line the lock is ahead of it"
    assert hand.tell(a) == "ok"
    assert hand.take().id == "keyed2"


def test_a_key_with_more_slots_is_still_a_lock_and_takes_one_of_them(conn: redis.Redis, broker: Broker) -> None:
    hand, (a, b) = running(broker, "a", "b")
    LimitBroker(conn).pin_limit("k", 3)
    assert int(want(broker, a))
    assert want(broker, b) == "waits"
    give(broker, "q", "keyed1", "keyed2", "keyed3", limit=None)
    assert ids(hand.claim(3)) == ["keyed1", "keyed2"], "who waits for the lock keeps no slot from jobs"
    assert give_back(broker, a)
    assert int(want(broker, b))
    assert status_of(conn, "keyed3") == "blocked"


def test_a_key_that_is_paused_gives_no_lock(conn: redis.Redis, broker: Broker) -> None:
    _, (a,) = running(broker, "a")
    limits = LimitBroker(conn)
    limits.pause_limit("k")
    assert want(broker, a) == "waits"
    limits.resume_limit("k")
    assert int(want(broker, a))


def test_what_is_refused(conn: redis.Redis, broker: Broker) -> None:
    hand, (a,) = running(broker, "a")
    broker.enqueue("q", [tied("keyed", key="mine")], "n")
    keyed = hand.take()
    assert want(broker, keyed, "mine") == "own"
    assert int(want(broker, keyed, "another"))
    assert all(int(want(broker, a, f"l{n}")) for n in range(10))
    assert want(broker, a, "l10") == "many"
    assert broker.lock("x", "a", "another:run:1", "c") == "stale"
    assert broker.lock("x", "nobody", "e", "c") == "stale"
    assert not broker.unlock("l1", "a", "another:run:1", "c")
    hand.tell(a)
    assert want(broker, a, "x") == "stale"


def test_a_run_is_not_refused_a_lock_that_an_earlier_run_left(conn: redis.Redis, broker: Broker) -> None:
    """A worker of a version without locks ends a run and frees none."""
    _, (a, b) = running(broker, "a", "b")
    first = int(want(broker, a))
    assert want(broker, a, "other")
    conn.hset("rq:job:a", "execution_id", "next/run")
    assert int(broker.lock("k", "a", "next/run", "c")) > first
    assert int(want(broker, b, "other")) > first, "what the new run does not want is free"
    assert broker.lock("k", "a", "next/run", "d") == "again"
    assert broker.unlock("k", "a", "next/run", "c")
    assert give_back(broker, b, "other")
    assert traces(conn) == []


def test_a_broken_key_is_refused_before_anything_is_written(conn: redis.Redis, broker: Broker) -> None:
    _, (a,) = running(broker, "a")
    conn.set("rq:limits:held:k", "x")
    with pytest.raises(redis.ResponseError, match="the concurrency key k is broken at rq:limits:held:k"):
        want(broker, a)
    assert conn.hget("rq:job:a", "ties") is None
    conn.delete("rq:limits:held:k")
    conn.set("rq:limits:locks:k", "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        want(broker, a)
    assert conn.hget("rq:job:a", "ties") is None


def _told(kind: str, **more: Any) -> Callable[[Broker, Hand, Claimed], object]:
    def tell(broker: Broker, hand: Hand, job: Claimed) -> None:
        assert hand.tell(job, kind, **more) == "ok"

    return tell


def _cancelled(broker: Broker, hand: Hand, job: Claimed) -> None:
    broker.cancel(job.id)
    assert hand.tell(job, "release", reason="cold") == "ok"


def _reaped(broker: Broker, hand: Hand, job: Claimed) -> None:
    expire_lease(broker.connection, job.queue, job.id)
    may_reap(broker.connection)
    assert broker.reap(LEASE, 0)[0] == 1


def _pruned(broker: Broker, hand: Hand, job: Claimed) -> None:
    assert broker.prune(LEASE, hand.name) == [(hand.name, 1)]


def _deregistered(broker: Broker, hand: Hand, job: Claimed) -> None:
    broker.deregister(hand.name, hand.incarnation)


ENDS = {
    "finished": _told("finished"),
    "failed": _told("failed", reason="ValueError: x"),
    "retry": _told("retry", delay=60, reason="ValueError: x"),
    "retry at once": _told("retry", delay=0, reason="ValueError: x"),
    "retry behind": _told("retry", delay=0, reason="ValueError: x", fields={"seq": ""}),
    "retry with its slot": _told("retry", delay=60, reason="ValueError: x", fields={"keep_slot": "1"}),
    "later": _told("later", delay=60, reason="x"),
    "limited": _told("limited", delay=60, reason="x"),
    "released": _told("release", reason="cold"),
    "lost": _told("lost", reason="gone"),
    "struck": _told("struck", reason="gone"),
    "displaced": _told("displaced", reason="x"),
    "suspect": _told("suspect", reason="x"),
    "stopped": _told("stopped", reason="stopped"),
    "repeat": _told("repeat", delay=60),
    "repeat at once": _told("repeat", delay=0),
    "canceled": _cancelled,
    "reaped": _reaped,
    "pruned": _pruned,
    "deregistered": _deregistered,
}  # fmt: skip


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
def test_whatever_ends_the_run_frees_its_locks(how: str, keyed: bool, conn: redis.Redis, broker: Broker) -> None:
    broker.enqueue("q", [tied("a", key="mine") if keyed else new("a")], "n-a")
    hand = Hand(broker, "q")
    a = hand.take()
    put(broker, "other", "b")
    (b,) = Hand(broker, "other", name="host.2").claim()
    assert int(want(broker, a))
    assert int(want(broker, a, "second"))
    assert int(want(broker, b, "third"))
    assert want(broker, a, "third") == "waits"
    assert want(broker, b) == "waits"
    ENDS[how](broker, hand, a)
    assert (fields_of(conn, "a").get("status") or "gone") != "started"
    assert conn.hget("rq:job:a", "locks") is None
    assert "l" not in (conn.hget("rq:job:a", "ties") or b"").decode()
    assert int(want(broker, b)), "the next in line has it"
    assert int(want(broker, b, "second"))
    assert [conn.zrange(f"rq:limits:locks:{name}", 0, -1) for name in ("k", "second", "third")] == [[b"b"]] * 3
    assert want(broker, a, "more") == "stale"
    assert conn.get("rq:limits:audit") is None


def test_a_lock_outlives_its_lease_as_long_as_the_run_does(conn: redis.Redis, broker: Broker) -> None:
    hand, (a, b) = running(broker, "a", "b")
    assert int(want(broker, a))
    for _ in range(3):
        expire_lease(conn, "q", "a")
        assert hand.extend(a) == (True, ["ok"])
        may_reap(conn)
        assert broker.reap(LEASE, 0)[0] == 0
        assert want(broker, b) == "waits"


def test_a_person_takes_a_lock_back(conn: redis.Redis, broker: Broker) -> None:
    _, (a, b) = running(broker, "a", "b")
    assert int(want(broker, a))
    assert want(broker, b) == "waits"
    assert LimitBroker(conn).release_slot("k", "a", by="ada")
    assert int(want(broker, b))
    assert not give_back(broker, a)
    assert events_of(conn, "a")[-1]["event"] == "slot_released"
    assert status_of(conn, "a") == "started"


def test_the_audit_leaves_locks_and_frees_what_no_run_has(conn: redis.Redis, broker: Broker) -> None:
    _, (a, b) = running(broker, "a", "b")
    assert int(want(broker, a))
    assert want(broker, b) == "waits"
    while broker.clean():
        pass
    assert conn.get("rq:limits:audit") is None
    assert (holders(conn), waiting(conn)) == (["a"], [])
    conn.hdel("rq:job:a", "locks")  # as a script that knows no locks would leave it
    while broker.clean():
        pass
    assert int(conn.get("rq:limits:audit") or 0) > 0
    assert int(want(broker, b))
