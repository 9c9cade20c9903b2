"""The index of queues that have work: which of any number of queues a wildcard's worker looks at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fusion.runtime.served_queues import ServedQueues
from fusion.store.write.broker import Broker
from tests.kit.hands import LEASE, Hand, expire_lease, ids, may_reap, promote_all, put, status_of


class Wild(Hand):
    """A worker of wildcards and names, as a worker process is one."""

    def __init__(self, broker: Broker, *names: str, name: str = "wild.1") -> None:
        self.served_queues = ServedQueues(names)
        super().__init__(broker, *names, name=name)
        self.refresh()

    def refresh(self) -> None:
        while self.served_queues.refresh(self.broker.survey, 0):
            pass

    def one(self) -> str:
        """The queue of the next job, or "" if there is none."""
        turn = self.turn(slots=[0], queues=self.served_queues.turn)
        for job in turn.jobs:
            self.served_queues.served(job.queue)
            return job.queue
        return self.one() if turn.again else ""

    def all(self) -> list[str]:
        order: list[str] = []
        while queue := self.one():
            order.append(queue)
        return order


def indexed(conn: redis.Redis, wildcard: str = "*") -> dict[str, int]:
    return {name.decode(): int(score) for name, score in conn.zrange(f"rq:work:{wildcard}", 0, -1, withscores=True)}


def bells(conn: redis.Redis, wildcard: str = "*") -> list[int]:
    return [conn.llen(f"rq:wake:{wildcard}"), conn.llen(f"rq:wake:{wildcard}:high")]


@pytest.fixture
def wild(broker: Broker) -> Wild:
    return Wild(broker, "*")


def _released(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hand.tell(hand.take(), "release")


def _lost(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hand.tell(hand.take(), "lost")


def _retried(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hand.tell(hand.take(), "retry")
    promote_all(broker, conn)


def _reaped(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    may_reap(conn)
    hand.take()
    expire_lease(conn, "q", "a")
    assert broker.reap(LEASE, 0)[0] == 1


def _pruned(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hand.take()
    assert broker.prune(LEASE, hand.name) == [(hand.name, 1)]


def _deregistered(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hand.take()
    assert broker.deregister(hand.name, hand.incarnation) == 1


def _requeued(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hand.tell(hand.take(), "failed", reason="r")
    assert broker.requeue(["a"], "n") == ["ok"]


def _unpaused(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    broker.pause("q")
    broker.unpause("q")


def _enqueued(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "b")


WAYS: list[Callable[[Broker, redis.Redis, Hand], None]] = [
    _enqueued, _released, _lost, _retried, _reaped, _pruned, _deregistered, _requeued, _unpaused,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_whatever_makes_work_claimable_enters_its_queue_and_wakes_a_worker(
    broker: Broker, conn: redis.Redis, wild: Wild, way: Callable[[Broker, redis.Redis, Hand], None]
) -> None:
    hand = Hand(broker, "q")
    put(broker, "q", "a", priority=2)
    conn.delete("rq:work:*", "rq:wake:*", "rq:wake:*:high")
    way(broker, conn, hand)
    assert "q" in indexed(conn)
    assert bells(conn)[0] == 1
    assert wild.one() == "q"


def test_the_turn_that_empties_a_queue_takes_it_out(broker: Broker, conn: redis.Redis, wild: Wild) -> None:
    put(broker, "a", "a1", "a2", priority=2)
    put(broker, "b", "b1", priority=0)
    assert indexed(conn) == {"a": 2, "b": 0}
    assert wild.all() == ["a", "a", "b"]
    assert indexed(conn) == {}


def test_a_wildcard_notices_queues_emptied_by_others(broker: Broker, conn: redis.Redis, wild: Wild) -> None:
    for n in range(40):
        put(broker, f"gone{n:02}", f"g{n}", priority=2)
    put(broker, "b", "b1")
    for n in range(40):
        assert broker.cancel(f"g{n}") == "canceled"
    assert wild.one() == "b"
    assert indexed(conn) == {}


def test_the_best_class_comes_first_whatever_the_index_says(broker: Broker, conn: redis.Redis, wild: Wild) -> None:
    put(broker, "was-high", "h", priority=2)
    put(broker, "was-high", "low", priority=0)
    put(broker, "normal", "n", priority=1)
    assert broker.delete(["h"]) == ["deleted"]
    assert indexed(conn)["was-high"] == 2
    assert wild.one() == "normal"
    assert indexed(conn)["was-high"] == 0
    put(broker, "was-high", "high", priority=2)
    assert indexed(conn)["was-high"] == 2


@pytest.mark.parametrize("count", [3, 16, 17, 60])
def test_queues_of_one_class_take_turns(broker: Broker, wild: Wild, count: int) -> None:
    names = [f"q{n:03}" for n in range(count)]
    for name in names:
        put(broker, name, *(f"{name}-{i}" for i in range(3)))
    order = wild.all()
    for start in range(0, 3 * count, count):
        assert sorted(order[start : start + count]) == names


def test_a_backlog_beside_queues_of_one_job_each_delays_none(broker: Broker, wild: Wild) -> None:
    """The place in the order is kept though the queue that had it is gone."""
    for n in range(100):
        put(broker, f"one{n:03}", f"o{n}")
    put(broker, "zz-backlog", *(f"z{n}" for n in range(100)))
    order = [wild.one() for _ in range(110)]
    assert order.count("zz-backlog") <= 10


def test_names_and_wildcards_take_turns_alike(broker: Broker) -> None:
    wild = Wild(broker, "sms", "otp*", "mail")
    for name in ("sms", "otp1", "otp2", "otp3", "mail"):
        put(broker, name, *(f"{name}-{i}" for i in range(3)))
    put(broker, "other", "o")
    order = wild.all()
    assert len(order) == 15
    for start in range(0, 15, 5):
        assert sorted(order[start : start + 5]) == ["mail", "otp1", "otp2", "otp3", "sms"]


def test_a_wildcard_sees_its_own_queues_only(broker: Broker, conn: redis.Redis) -> None:
    wild = Wild(broker, "vip-*")
    for n in range(50):
        put(broker, f"a{n}", f"a{n}", priority=2)
    put(broker, "vip-1", "v")
    assert indexed(conn, "vip-*") == {"vip-1": 1}
    assert wild.all() == ["vip-1"]


def test_a_full_turn_serves_many_queues(broker: Broker, wild: Wild) -> None:
    for n in range(10):
        put(broker, f"q{n}", f"j{n}")
    turn = wild.turn(slots=[0] * 10, queues=wild.served_queues.turn)
    assert len({job.queue for job in turn.jobs}) == 10


def test_a_paused_queue_hides_no_other(broker: Broker, conn: redis.Redis, wild: Wild) -> None:
    for n in range(40):
        put(broker, f"p{n:02}", f"p{n}", priority=2)
        broker.pause(f"p{n:02}")
    put(broker, "a", "a")
    assert wild.one() == "a"
    assert wild.one() == ""
    assert indexed(conn) == {}
    wild.refresh()
    assert indexed(conn) == {}, "the survey leaves it out"
    conn.delete("rq:paused:p07")  # its time is over
    wild.refresh()
    assert indexed(conn) == {"p07": 2}
    assert bells(conn) == [1, 1]
    assert wild.one() == "p07"


def test_a_broken_queue_hides_no_other(broker: Broker, conn: redis.Redis, wild: Wild) -> None:
    for n in range(40):
        put(broker, f"x{n:02}", f"x{n}", priority=2)
        conn.delete(f"rq:queue:x{n:02}")
        conn.set(f"rq:queue:x{n:02}", "junk")
    put(broker, "a", "a")
    assert wild.one() == "a"
    wild.refresh()
    assert indexed(conn) == {}


def test_a_new_wildcard_finds_what_is_there(broker: Broker, conn: redis.Redis) -> None:
    for n in range(600):
        put(broker, f"q{n}", f"j{n}")
    wild = Wild(broker, "q5*")
    assert len(indexed(conn, "q5*")) == 111
    assert len(wild.all()) == 111


def test_the_survey_finds_what_older_producers_enqueued(broker: Broker, conn: redis.Redis, wild: Wild) -> None:
    conn.sadd("rq:queues", "rq:queue:old", "rq:queue:scheduler", "rq:queue:_callbacks", "rq:queue:failed")
    conn.zadd("rq:queue:old", {"o": 2})
    conn.hset("rq:job:o", "data", '["t",null,[],{}]')
    conn.rpush("rq:queue:scheduler", "s")
    conn.hset("rq:job:s", "data", '["t",null,[],{}]')
    conn.zadd("rq:queue:_callbacks", {"c": 2})
    conn.zadd("rq:queue:failed", {"f": 2})
    wild.refresh()
    assert indexed(conn) == {"old": 2, "scheduler": 1}
    assert bells(conn) == [1, 1]
    conn.zadd("rq:work:*", {"old": 0})
    wild.refresh()
    assert indexed(conn)["old"] == 2, "an older producer may put better ones behind worse"
    assert wild.all() == ["old", "scheduler"]
    assert (status_of(conn, "o"), status_of(conn, "s")) == ("started", "started")
    assert indexed(conn) == {}


def test_one_pass_an_interval_however_many_ask(broker: Broker, conn: redis.Redis, wild: Wild) -> None:
    compiled = {"*": ""}
    conn.sadd("rq:queues", "rq:queue:old")
    assert not broker.survey(compiled, 0)
    conn.zadd("rq:queue:old", {"o": 2})
    assert not broker.survey(compiled, 60)
    assert indexed(conn) == {}
    conn.hset("rq:survey", "began", 2**45)
    assert not broker.survey(compiled, 60), "written by a clock that was set back since"
    assert indexed(conn) == {"old": 2}


def test_calls_go_on_where_the_last_one_stopped(broker: Broker, conn: redis.Redis, wild: Wild) -> None:
    names = [f"rq:queue:old{n}" for n in range(1000)]
    conn.sadd("rq:queues", *names)
    for name in names:
        conn.zadd(name, {"o": 1})
    looks = [len(indexed(conn))]
    while Broker(conn).survey({"*": ""}, 0, 50):
        looks.append(len(indexed(conn)))
        assert looks[-1] - looks[-2] < 100
    assert len(indexed(conn)) == 1000


def test_a_wildcard_that_nobody_serves_is_forgotten(broker: Broker, conn: redis.Redis, wild: Wild) -> None:
    put(broker, "q", "a", priority=2)
    conn.hset("rq:wildcards", mapping={"gone*": "1 ^gone", "later*": f"{2**45} ^later"})
    conn.zadd("rq:work:gone*", {"gone1": 1})
    conn.rpush("rq:wake:gone*", 1)
    wild.refresh()
    assert not conn.exists("rq:work:gone*", "rq:wake:gone*")
    assert set(conn.hkeys("rq:wildcards")) == {b"*", b"later*"}
    assert int(conn.hget("rq:wildcards", "later*").split()[0]) < 2**45


@pytest.mark.parametrize("key", ["rq:wildcards", "rq:work:*"])
def test_a_broken_index_fails_no_job(broker: Broker, conn: redis.Redis, wild: Wild, key: str) -> None:
    conn.delete(key)
    conn.set(key, "junk")
    put(broker, "q", "a", priority=2)
    hand = Hand(broker, "q")
    assert hand.tell(hand.take()) == "ok"


def test_a_token_that_came_too_late_is_passed_on(broker: Broker, conn: redis.Redis, wild: Wild) -> None:
    broker.ring("*")
    assert bells(conn) == [0, 0], "there is nothing to do"
    put(broker, "q", "a", priority=1)
    conn.delete("rq:wake:*")
    broker.ring("*")
    assert bells(conn) == [1, 0]
    put(broker, "r", "b", priority=2)
    conn.delete("rq:wake:*", "rq:wake:*:high")
    broker.ring("*")
    assert bells(conn) == [1, 1]


def test_jobs_left_by_a_wildcard_claim_wake_another_worker(broker: Broker, conn: redis.Redis, wild: Wild) -> None:
    for n in range(30):
        put(broker, f"q{n:02}", f"j{n}", priority=2)
    conn.delete("rq:wake:*", "rq:wake:*:high")
    assert wild.one()
    assert bells(conn) == [1, 1]
    conn.delete("rq:wake:*", "rq:wake:*:high")
    named = Hand(broker, "q00", name="named.1")
    put(broker, "q00", "more")
    conn.delete("rq:wake:*", "rq:wake:*:high")
    named.take()
    assert bells(conn)[0] == 1, "one that serves a name wakes those that serve it by a wildcard"


def test_nobody_is_woken_while_all_are_suspended(broker: Broker, conn: redis.Redis, wild: Wild) -> None:
    broker.suspend()
    for n in range(300):
        put(broker, f"q{n}", f"j{n}", priority=2)
    assert bells(conn) == [0, 0]
    assert wild.one() == ""
    assert broker.resume()
    assert bells(conn) == [1, 1]
    assert {conn.llen(f"rq:wake:q{n}") for n in range(300)} == {1}
    assert len(ids(wild.turn(slots=[0] * 20, queues=wild.served_queues.turn).jobs)) >= 16
