"""Limits and rates of queues, at the scripts: what is claimed, who waits, what rings."""

from __future__ import annotations

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.kit.hands import LEASE, Hand, expire_lease, ids, may_reap, now_ms, outcome, put


def hands(broker: Broker, count: int, *queues: str) -> list[Hand]:
    return [Hand(broker, *queues, name=f"host.{i}") for i in range(1, count + 1)]


def rung(conn: redis.Redis, queue: str = "q") -> bool:
    """Whether its bell was rung; the token is taken, as a worker takes it."""
    return conn.lpop(f"rq:wake:{queue}") is not None


def rest(conn: redis.Redis, queue: str = "q") -> None:
    """As if nothing had started for long."""
    conn.hdel(f"rq:gate:{queue}", "tat")
    conn.delete(f"rq:wake:{queue}:closed")


# -- limits


def test_at_most_so_many_at_once_over_the_fleet(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"limit": 3})
    put(broker, "q", *"abcdef")
    one, two = hands(broker, 2, "q")
    assert ids(one.claim(2)) == ["a", "b"]
    assert ids(two.claim(2)) == ["c"]
    assert two.claim(1) == []
    assert one.claim(1) == []
    assert conn.zcard("rq:wip:q") == 3


def test_an_end_lets_the_next_one_in(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"limit": 1})
    put(broker, "q", *"abc")
    hand = Hand(broker, "q")
    a = hand.take()
    turn = hand.turn(outcome(a), slots=[0])
    assert (turn.answers, ids(turn.jobs)) == (["ok"], ["b"])
    assert ids(hand.turn(outcome(turn.jobs[0], "failed", reason="x"), slots=[0, 0]).jobs) == ["c"]


def test_nothing_is_claimed_ahead_from_a_limited_or_rated_queue(broker: Broker) -> None:
    broker.set_gate("limited", {"limit": 9})
    broker.set_gate("rated", {"rate": "1000/1000/1000"})
    broker.set_gate("other", {"max_wait": 1000})
    for queue in ("limited", "rated", "other", "free"):
        put(broker, queue, f"{queue}1", f"{queue}2")
    hand = Hand(broker, "limited", "rated", "other", "free")
    assert {job.queue for job in hand.turn(slots=[0] * 4, ahead=4).jobs} == {"other", "free"}
    assert len(hand.turn(slots=[0] * 8, ahead=4).jobs) == 4


def test_a_full_queue_rings_for_nobody_until_a_job_ends(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"limit": 1})
    put(broker, "q", *"abc")
    one, two = hands(broker, 2, "q")
    a = one.take()
    assert rung(conn), "what is left wakes another worker, which finds the queue full"
    assert two.claim() == []
    put(broker, "q", "d", priority=2)
    broker.ring("q")
    assert not rung(conn)
    assert conn.exists("rq:wake:q:high") == 0
    one.turn(outcome(a))  # it takes none itself
    assert rung(conn)
    assert ids(two.claim()) == ["d"]


def test_whatever_ends_a_job_lets_another_worker_know(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"limit": 1})
    one, two, three = hands(broker, 3, "q")
    for kind, more in (
        ("finished", {}),
        ("failed", {"reason": "x"}),
        ("retry", {"reason": "x", "delay": 60.0}),
        ("later", {"reason": "x", "delay": 60.0}),
        ("release", {"reason": "x"}),
        ("lost", {"reason": "x"}),
    ):
        put(broker, "q", f"{kind}1", f"{kind}2")
        held = one.take()
        assert two.claim() == []
        conn.delete("rq:wake:q")
        assert one.tell(held, kind, **more) == "ok"
        assert rung(conn), kind
        (last,) = two.claim()
        two.tell(last)
        while left := two.claim():
            two.tell(left[0])
        conn.delete("rq:scheduler:scheduled_jobs", "rq:wake:q")
    put(broker, "q", "pruned", "x")
    three.take()
    assert two.claim() == []
    conn.delete("rq:wake:q")
    broker.prune(LEASE, three.name)
    assert rung(conn)
    assert two.take().id == "pruned"
    assert one.claim() == []
    conn.delete("rq:wake:q")
    expire_lease(conn, "q", "pruned")
    may_reap(conn)
    broker.reap(LEASE, 0.0)
    assert rung(conn)
    assert one.take().id == "x", "the other was lost twice, and waits a moment"
    assert two.claim() == []
    conn.delete("rq:wake:q")
    broker.deregister(one.name, one.incarnation)
    assert rung(conn)


def test_a_canceled_execution_lets_another_worker_know(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"limit": 1})
    put(broker, "q", "a", "b")
    one, two = hands(broker, 2, "q")
    a = one.take()
    assert two.claim() == []
    conn.delete("rq:wake:q")
    assert broker.cancel("a") == "pending"
    assert not rung(conn)
    one.tell(a, "retry", reason="x")
    assert rung(conn)


def test_a_limit_counts_no_one_of_stock_rqs(broker: Broker, conn: redis.Redis) -> None:
    """RQ keeps what it runs in the same key, scored in seconds or without an end, and may leave it there."""
    conn.zadd("rq:wip:q", {"rqs": now_ms(conn) / 1000, "endless": float("inf")})
    broker.set_gate("q", {"limit": 1})
    put(broker, "q", "a")
    assert Hand(broker, "q").take().id == "a"


def test_another_limit_counts_at_once(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"limit": 1})
    put(broker, "q", *"abcdef")
    one, two = hands(broker, 2, "q")
    one.claim(5)
    assert two.claim(5) == []
    conn.delete("rq:wake:q")
    broker.set_gate("q", {"limit": 3})
    assert rung(conn)
    assert ids(two.claim(5)) == ["b", "c"]
    broker.set_gate("q", {"limit": 2})
    assert not rung(conn)
    held = one.claim(5)
    assert held == []
    broker.set_gate("q", {"limit": None})
    assert rung(conn)
    assert len(two.claim(5)) == 3
    assert conn.exists("rq:gates", "rq:gate:q", "rq:wake:q:closed") == 0


def test_a_full_queue_holds_up_no_other(broker: Broker) -> None:
    broker.set_gate("full", {"limit": 1})
    put(broker, "full", "a", "b", priority=2)
    put(broker, "q", "c", priority=0)
    hand = Hand(broker, "full", "q")
    assert ids(hand.claim(3)) == ["a", "c"]


# -- rates


def test_a_rate_is_counted_at_the_claim(broker: Broker, conn: redis.Redis) -> None:
    """An hour's backlog meets a worker that was away: a burst, then the rate."""
    broker.set_gate("q", {"rate": "3600/3600000/2"})  # one a second
    put(broker, "q", *(f"j{i}" for i in range(20)))
    hand = Hand(broker, "q")
    turn = hand.turn(slots=[0] * 10)
    assert ids(turn.jobs) == ["j0", "j1"]
    assert turn.opens_in is not None
    assert 0.9 < turn.opens_in <= 1.0
    assert hand.turn(slots=[0] * 8).jobs == []
    conn.hincrbyfloat("rq:gate:q", "tat", -1_000_000)
    assert ids(hand.turn(slots=[0] * 8).jobs) == ["j2"]


def test_a_resend_spends_no_second_token(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"rate": "1/3600000/3"})
    put(broker, "q", *"abcde")
    hand = Hand(broker, "q")
    first = hand.turn(slots=[0, 0])
    tat = conn.hget("rq:gate:q", "tat")
    again = hand.turn(slots=[0, 0], token=hand.token)
    assert ids(again.jobs) == ids(first.jobs) == ["a", "b"]
    assert conn.hget("rq:gate:q", "tat") == tat
    third = hand.turn(slots=[0, 0])
    assert ids(third.jobs) == ["c"]
    assert third.opens_in
    resent = hand.turn(slots=[0, 0], token=hand.token)
    assert (ids(resent.jobs), resent.opens_in) == (["c"], third.opens_in)


def test_one_idle_worker_waits_and_is_named(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"rate": "1/60000/1"})
    put(broker, "q", *"abc")
    one, two, three = hands(broker, 3, "q")
    assert one.turn(slots=[0]).opens_in is None, "it is full: somebody else has to wait"
    assert rung(conn)
    opens = two.turn(slots=[0]).opens_in
    assert opens is not None
    assert 59 < opens <= 60
    assert conn.hget("rq:gate:q", "waiter") == b"host.2"
    assert three.turn(slots=[0]).opens_in is None
    assert not rung(conn)
    put(broker, "q", "d", priority=2)
    broker.ring("q")
    assert not rung(conn), "a closed queue is silent"
    assert two.turn(slots=[0]).opens_in is not None, "the one that waits goes on"
    conn.hset("rq:gate:q", "named", now_ms(conn) - 3001)
    assert three.turn(slots=[0]).opens_in is not None, "it was silent for 3 s"
    assert two.turn(slots=[0]).opens_in is None


@pytest.mark.parametrize("way", ["takes no more", "leaves", "is buried"])
def test_one_that_waited_and_goes_hands_it_on(broker: Broker, conn: redis.Redis, way: str) -> None:
    broker.set_gate("q", {"rate": "1/60000/1"})
    broker.set_gate("full", {"rate": "1/60000/1", "limit": 1})
    put(broker, "q", *"abc")
    put(broker, "full", *"xyz")
    one, two = hands(broker, 2, "q", "full")
    (x,) = one.turn(slots=[0], queues=["full"]).jobs
    one.turn(slots=[0], queues=["q"])
    two.turn(slots=[0])
    conn.hset("rq:gate:full", mapping={"waiter": two.name, "named": now_ms(conn)})
    conn.delete("rq:wake:q", "rq:wake:full")
    broker.ring(waiter="somebody else")
    assert not rung(conn)
    if way == "takes no more":
        broker.ring(waiter=two.name)
    elif way == "leaves":
        broker.deregister(two.name, two.incarnation)
    else:
        broker.prune(LEASE, two.name)
    assert rung(conn)
    assert not rung(conn, "full"), "it is at its limit"
    assert not conn.hexists("rq:gate:q", "waiter")
    assert one.turn(slots=[0], queues=["q"]).opens_in is not None
    one.turn(outcome(x))
    assert rung(conn, "full"), "nobody waits for its rate"


def test_one_that_waited_and_is_full_passes_it_on(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"rate": "1/60000/1"})
    put(broker, "q", *"abc")
    put(broker, "other", "x")
    one, two = hands(broker, 2, "q", "other")
    one.turn(slots=[0], queues=["q"])
    assert two.turn(slots=[0], queues=["q"]).opens_in is not None
    conn.delete("rq:wake:q")
    assert ids(two.turn(slots=[0]).jobs) == ["x"]
    assert rung(conn)
    assert conn.exists("rq:wake:q:closed") == 0
    assert conn.hexists("rq:gate:q", "waiter") == 0


def test_a_worker_whose_slots_are_reserved_waits_for_no_lower_job(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"rate": "1/60000/1"})
    put(broker, "q", *"abc")
    one, two = hands(broker, 2, "q")
    one.take()
    assert two.turn(slots=[2]).opens_in is None
    put(broker, "q", "d", priority=2)
    assert two.turn(slots=[2]).opens_in is not None


def test_an_empty_queue_is_not_waited_for_and_its_next_job_rings(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"rate": "1/60000/1"})
    put(broker, "q", "a")
    one, two = hands(broker, 2, "q")
    conn.delete("rq:wake:q")
    assert one.turn(slots=[0, 0]).opens_in is None
    assert conn.exists("rq:wake:q:closed") == 0
    put(broker, "q", "b")
    assert rung(conn)
    assert two.turn(slots=[0]).opens_in is not None


def test_another_rate_counts_at_once(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"rate": "1/3600000/1"})
    put(broker, "q", *"abcdef")
    one, two = hands(broker, 2, "q")
    one.take()
    conn.delete("rq:wake:q")
    assert (two.turn(slots=[0]).opens_in or 0) > 3500
    broker.set_gate("q", {"rate": "1/1000/1"})
    assert rung(conn)
    assert 0.9 < (one.turn(slots=[0]).opens_in or 0) <= 1
    broker.set_gate("q", {"rate": None})
    assert len(two.claim(9)) == 5


def test_a_limit_and_a_rate_together(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"limit": 2, "rate": "1/60000/3"})
    put(broker, "q", *"abcdef")
    one, two = hands(broker, 2, "q")
    a, b = one.claim(5)
    assert one.turn(slots=[0] * 3).opens_in is None, "it is full, and has a token"
    turn = one.turn(outcome(a), outcome(b), slots=[0] * 5)
    assert ids(turn.jobs) == ["c"]
    assert turn.opens_in is not None
    conn.delete("rq:wake:q")
    one.turn(outcome(turn.jobs[0]))
    assert not rung(conn) or two.turn(slots=[0]).opens_in is not None


def test_a_clock_set_back_does_not_block_a_rate_for_ever(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"rate": "1/1000/1"})
    put(broker, "q", *"ab")
    hand = Hand(broker, "q")
    hand.take()
    conn.hset("rq:gate:q", "tat", (now_ms(conn) + 86_400_000) * 1000)
    conn.hset("rq:gate:q", mapping={"waiter": "host.9", "named": now_ms(conn) + 86_400_000})
    assert 0.9 < (hand.turn(slots=[0]).opens_in or 0) <= 1
