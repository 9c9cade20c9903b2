"""Gates of queues beside pauses, wildcards, broken keys; and queues that a task has held back."""

from __future__ import annotations

import redis

from fusion.store.layout.records import Commit
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, ids, now_ms, outcome, put
from tests.store.test_queue_gates import hands, rest, rung


def test_paused_and_suspended_queues_are_waited_for_by_nobody(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"rate": "1/60000/1"})
    put(broker, "q", *"abc")
    one, two = hands(broker, 2, "q")
    one.take()
    assert two.turn(slots=[0]).opens_in is not None
    broker.pause("q")
    assert two.turn(slots=[0]).opens_in is None
    conn.delete("rq:wake:q")
    broker.unpause("q")
    assert rung(conn), "one looks, and waits"
    assert two.turn(slots=[0]).opens_in is not None
    broker.suspend()
    assert two.turn(slots=[0]).opens_in is None
    broker.resume()
    rest(conn)
    assert two.take().id == "b"


def test_an_end_in_a_paused_or_suspended_fleet_is_not_forgotten(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"limit": 1})
    put(broker, "q", *"abc")
    one, two = hands(broker, 2, "q")
    a = one.take()
    assert two.claim() == []
    conn.delete("rq:wake:q")
    broker.suspend()
    one.tell(a)
    assert not rung(conn)
    broker.resume()
    assert rung(conn)
    (b,) = two.claim()
    assert one.claim() == []
    broker.pause("q")
    two.turn(outcome(b), slots=[0])
    conn.delete("rq:wake:q")
    broker.unpause("q")
    assert rung(conn)


def _survey(broker: Broker) -> None:
    while broker.survey({"*": " ^.*$"}, 0.0):
        pass


def test_wildcards_know_of_gates(broker: Broker, conn: redis.Redis) -> None:
    _survey(broker)
    broker.set_gate("full", {"limit": 1})
    broker.set_gate("slow", {"rate": "1/60000/1"})
    put(broker, "full", "a", "b")
    put(broker, "slow", "c", "d")
    one, two = hands(broker, 2, "*")
    turn = one.turn(slots=[0] * 5)
    assert sorted(ids(turn.jobs)) == ["a", "c"]
    assert turn.opens_in is not None
    conn.delete("rq:wake:*")
    put(broker, "full", "e", priority=2)
    put(broker, "slow", "f", priority=2)
    assert not rung(conn, "*")
    assert conn.zscore("rq:work:*", "full") == 2, "it is in the index all the same"
    (a,) = (job for job in turn.jobs if job.id == "a")
    one.turn(outcome(a))
    assert rung(conn, "*")
    assert ids(two.claim(5)) == ["e"]


def test_closed_queues_hide_no_others_of_a_wildcard(broker: Broker, conn: redis.Redis) -> None:
    """A turn looks at 16 queues of a wildcard that has more with work."""
    _survey(broker)
    hand = Hand(broker, "*")
    for n in range(20):
        broker.set_gate(f"full{n}", {"limit": 1} if n % 2 else {"rate": "1/60000/1"})
        put(broker, f"full{n}", f"f{n}-1", f"f{n}-2", priority=2)
    put(broker, "low", "x", priority=0)
    found = list[str]()
    for _ in range(30):
        found += ids(hand.claim(4))
    assert "x" in found
    assert len(found) == 21
    conn.delete("rq:wake:*")
    (first,) = (job for job in [hand.broker.connection.hget("rq:worker:host.1:jobs", "f1-1")] if job)
    hand.turn(Commit("finished", "f1-1", first.decode()))
    assert rung(conn, "*")
    assert ids(hand.claim()) == ["f1-2"]


def test_a_broken_gate_stops_only_its_queue_and_is_reported(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"limit": 1})
    conn.set("rq:gate:q", "garbage")
    put(broker, "q", "a")
    put(broker, "other", "b")
    hand = Hand(broker, "q", "other")
    turn = hand.turn(slots=[0, 0])
    assert ids(turn.jobs) == ["b"]
    assert [queue for queue, _ in turn.bad] == ["q"]
    conn.delete("rq:gate:q")
    assert ids(hand.claim()) == ["a"]


def test_garbage_that_is_set_bounds_nothing(broker: Broker, conn: redis.Redis) -> None:
    conn.hset("rq:gates", "q", "limit=many rate=fast until=soon max_wait=x max_length=5")
    put(broker, "q", "a")
    assert Hand(broker, "q").take().id == "a"


def test_a_worker_of_very_many_queues_with_gates(broker: Broker, conn: redis.Redis) -> None:
    queues = [f"q{i}" for i in range(2500)]
    for queue in ("q0", "q1200", "q2499"):
        broker.set_gate(queue, {"limit": 1})
        put(broker, queue, f"{queue}-a", f"{queue}-b")
    hand = Hand(broker, *queues)
    assert sorted(ids(hand.claim(9))) == ["q0-a", "q1200-a", "q2499-a"]


# -- held back by a task


def test_a_job_that_was_limited_goes_back_and_holds_its_queue_back(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b")
    put(broker, "other", "c")
    one, two = hands(broker, 2, "q", "other")
    a = one.take()
    turn = one.turn(outcome(a, "limited", delay=30.0, reason="429"), slots=[0, 0])
    assert (turn.answers, ids(turn.jobs)) == (["ok"], ["c"])
    assert 29 < (turn.opens_in or 0) <= 30
    due = conn.zscore("rq:scheduler:scheduled_jobs", "a")
    assert due is not None
    assert abs(due * 1000 - now_ms(conn) - 30_000) < 1000
    assert not conn.hexists("rq:job:a", "attempts")
    assert two.claim() == []
    assert one.turn(outcome(a, "limited", delay=60.0, reason="429")).answers == ["ok"], "it stands already, and changes nothing"
    assert 29 < (one.turn(slots=[0]).opens_in or 0) <= 30


def test_the_longest_time_counts_and_beside_what_is_set(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"limit": 5})
    put(broker, "q", *"abcd")
    hand = Hand(broker, "q")
    a, b = hand.claim(2)
    hand.turn(outcome(a, "limited", delay=60.0, reason="429"), outcome(b, "limited", delay=30.0, reason="429"))
    assert 59 < (hand.turn(slots=[0]).opens_in or 0) <= 60
    conn.hset("rq:gates", "q", f"limit=5 until={now_ms(conn) - 1}")
    assert ids(hand.claim(9)) == ["c", "d"]
    assert conn.hget("rq:gates", "q") == b"limit=5"
    conn.hset("rq:gates", "q", f"until={now_ms(conn) + 90_000_000}")
    put(broker, "q", "e")
    assert hand.take().id == "e", "no task could ask for that: the clock was set back"
    assert conn.exists("rq:gates") == 0


def test_a_pending_cancel_wins_and_the_queue_is_held_back_all_the_same(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    a = hand.take()
    broker.cancel("a")
    assert hand.tell(a, "limited", delay=30.0, reason="429") == "ok"
    assert conn.hget("rq:job:a", "status") == b"canceled"
    assert hand.claim() == []
