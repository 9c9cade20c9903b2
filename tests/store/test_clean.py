"""What is over is forgotten, hash and entry together, and nothing before its time (ADR 0017)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import LEASE, Hand, drain, everything, expire_lease, fields_of, may_reap, now_ms, promote_all, put, status_of


def _over(conn: redis.Redis, key: str, *job_ids: str) -> None:
    conn.zadd(key, dict.fromkeys(job_ids, now_ms(conn) / 1000 - 2), xx=True)


def test_each_terminal_set(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "finished", "failed", "canceled", "kept", "waiting")
    broker.cancel("canceled")
    finished, failed, kept = hand.claim(3)
    hand.tell(finished)
    hand.tell(failed, "failed", reason="r")
    hand.tell(kept)
    conn.sadd("rq:job:finished:dependents", "child")
    assert not broker.clean()
    assert len(check_conservation(conn, ["finished", "failed", "canceled", "kept", "waiting"])) == 5, "nothing is over yet"
    _over(conn, "rq:finished:q", "finished")
    _over(conn, "rq:queue:failed", "failed")
    _over(conn, "rq:canceled:q", "canceled")
    assert not broker.clean()
    assert check_conservation(conn, ["kept", "waiting"]) == {"kept": "finished", "waiting": "queued"}
    keys = everything(conn)
    assert not [
        key for key in keys if key.split(":")[2:3] in (["finished"], ["failed"], ["canceled"]) and key.startswith("rq:job")
    ]
    assert not {"rq:queue:failed", "rq:canceled:q"} & set(keys)


def test_bounded_work(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    names = [f"j{i:02d}" for i in range(25)]
    put(broker, "q", *names)
    for claimed in hand.claim(25):
        hand.tell(claimed)
    _over(conn, "rq:finished:q", *names)
    assert [broker.clean(10) for _ in range(3)] == [True, True, False]
    assert conn.zcard("rq:finished:q") == 0


def test_the_entry_of_an_earlier_life_does_not_take_the_later_one_along(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    conn.zadd("rq:finished:q", {"a": 1})
    conn.zadd("rq:queue:failed", {"a": 1})
    assert not broker.clean()
    assert check_conservation(conn, ["a"]) == {"a": "queued"}
    assert drain(hand) == ["a"]


def test_a_verdict_stays_a_minute(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", result_ttl=0, failure_ttl=0)
    put(broker, "q", "b", result_ttl=0, failure_ttl=0)
    a, b = hand.claim(2)
    hand.tell(a, fields={"result": "1"})
    hand.tell(b, "failed", reason="r")
    broker.clean()
    assert (status_of(conn, "a"), status_of(conn, "b")) == ("finished", "failed")
    for key in ("rq:finished:q", "rq:queue:failed"):
        assert conn.zrange(key, 0, 0, withscores=True)[0][1] >= now_ms(conn) / 1000 + 58


def test_broken_keys_stop_nothing_else(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    for claimed in hand.claim(2):
        hand.tell(claimed)
    put(broker, "broken", "x")
    conn.delete("rq:queue:broken")
    for key in ("rq:queue:failed", "rq:canceled:q", "rq:queue:broken", "rq:finished:broken"):
        conn.set(key, "junk")
    conn.delete("rq:job:a")
    conn.set("rq:job:a", "not a hash")
    _over(conn, "rq:finished:q", "a", "b")
    assert not broker.clean()
    assert not conn.exists("rq:finished:q", "rq:job:b")
    assert conn.get("rq:job:a") == b"not a hash"


def test_adopting_old_entries_is_bounded_too(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    conn.sadd("rq:queues", "rq:queue:q")
    for i in range(25):
        conn.hset(f"rq:job:j{i:02d}", "data", "d")
        conn.zadd("rq:queue:q", {f"j{i:02d}": 1})
    assert [broker.clean(10) for _ in range(3)] == [True, True, False]
    scores = [score for _, score in conn.zrange("rq:queue:q", 0, -1, withscores=True)]
    assert len(set(scores)) == 25
    assert all(not score.is_integer() for score in scores)
    assert fields_of(conn, "j00")["priority"] == "1"


# -- names

DAY = 86_400_000


def names(conn: redis.Redis) -> set[str]:
    return {key.decode().removeprefix("rq:queue:") for key in conn.smembers("rq:queues")}


def idle_since(conn: redis.Redis, queue: str, ms: int) -> None:
    conn.hset("rq:queues:idle", f"rq:queue:{queue}", ms)


def test_a_name_goes_when_all_its_sets_have_been_empty_for_a_day(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    put(broker, "other", "b")
    hand.tell(hand.take(), "failed", reason="r")
    broker.clean()
    since = int(conn.hget("rq:queues:idle", "rq:queue:q"))
    assert abs(since - now_ms(conn)) < 5_000
    idle_since(conn, "q", now_ms(conn) - DAY + 5_000)
    broker.clean()
    assert names(conn) == {"q", "other"}
    idle_since(conn, "q", now_ms(conn) - DAY)
    broker.clean()
    assert names(conn) == {"other"}
    assert not conn.exists("rq:queues:idle")
    put(broker, "q", "c")
    assert names(conn) == {"q", "other"}
    assert hand.take().id == "c"


def _waiting(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")


def _running(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.take()


def _ended(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.tell(hand.take())


def _canceled(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    broker.cancel("a")


def _paused(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    conn.sadd("rq:queues", "rq:queue:q")
    broker.pause("q")


@pytest.mark.parametrize("state", [_waiting, _running, _ended, _canceled, _paused])
def test_a_name_in_use_stays(
    broker: Broker, conn: redis.Redis, hand: Hand, state: Callable[[Broker, redis.Redis, Hand], None]
) -> None:
    state(broker, conn, hand)
    idle_since(conn, "q", 1)
    broker.clean()
    assert names(conn) == {"q"}
    assert not conn.exists("rq:queues:idle"), "from now on its day begins anew"


def test_the_clock_was_set_back_since(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    conn.sadd("rq:queues", "rq:queue:q")
    idle_since(conn, "q", 2**45)
    broker.clean()
    assert abs(int(conn.hget("rq:queues:idle", "rq:queue:q")) - now_ms(conn)) < 5_000
    conn.hset("rq:clean", "began", 2**45)
    idle_since(conn, "q", 1)
    broker.clean(interval=60)
    assert names(conn) == set()


def test_a_job_whose_time_comes_after_the_name_went_brings_it_back(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", delay=1000.0)
    idle_since(conn, "q", 1)
    broker.clean()
    assert names(conn) == set()
    promote_all(broker, conn)
    assert names(conn) == {"q"}
    assert drain(hand) == ["a"]


def test_calls_go_on_where_the_last_one_stopped(broker: Broker, conn: redis.Redis) -> None:
    """One pass an interval, however many call, and a bounded number of names a call."""
    conn.sadd("rq:queues", *(f"rq:queue:q{n}" for n in range(1000)))
    processes = [Broker(conn) for _ in range(3)]
    calls, looked = 0, 0
    while processes[calls % 3].clean(names=30, interval=60):
        calls += 1
        assert conn.hlen("rq:queues:idle") - looked <= 60
        looked = conn.hlen("rq:queues:idle")
    assert conn.hlen("rq:queues:idle") == 1000
    conn.delete("rq:queues:idle")
    assert not broker.clean(interval=60)
    assert not conn.exists("rq:queues:idle"), "the next pass begins when the interval is over"
    assert broker.clean(names=30)


@pytest.mark.parametrize("count", [5, 100])
def test_a_small_set_of_names_is_bounded_as_well(broker: Broker, conn: redis.Redis, count: int) -> None:
    """Redis gives a small set as a whole, however many are asked for."""
    conn.sadd("rq:queues", *(f"rq:queue:q{n}" for n in range(count)))
    assert broker.clean(names=2)
    assert conn.hlen("rq:queues:idle") <= 4
    while broker.clean(names=2):
        pass
    assert conn.hlen("rq:queues:idle") == count


def test_leases_of_a_version_without_their_index_enter_it(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    hand.take()
    ends = conn.zscore("rq:leases", "q")
    conn.delete("rq:leases")
    broker.clean()
    assert conn.zscore("rq:leases", "q") == ends
    may_reap(conn)
    expire_lease(conn, "q", "a")
    assert broker.reap(LEASE, 0) == (1, False)
    broker.cancel("a")
    may_reap(conn)
    broker.reap(LEASE, 0)
    assert not conn.exists("rq:leases")
