"""Concurrency keys that a task holds back for a time, as a provider wants no more calls."""

from __future__ import annotations

import redis

from fusion.store.read.limit_inspector import LimitInfo, LimitInspector
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from tests.kit.hands import Hand, ids, now_ms, outcome, put, status_of
from tests.store.limits_hands import faults, give, holders, waiting

DAY = 86_400_000


def info_of(conn: redis.Redis) -> LimitInfo:
    (info,) = LimitInspector(conn).limits(["k"])
    assert info is not None
    return info


def left(conn: redis.Redis) -> float:
    """Seconds for which the key is held back."""
    return (int(conn.hget("rq:limit:k", "held_back") or 0) - now_ms(conn)) / 1000


def time_passes(conn: redis.Redis, *job_ids: str) -> None:
    """The hold is over, and what waits for its end is due."""
    past = now_ms(conn) - 1
    conn.hset("rq:limit:k", "held_back", past)
    conn.zadd("rq:limits:due", {"k": past})
    for job_id in job_ids:
        conn.zadd("rq:scheduler:scheduled_jobs", {job_id: past / 1000}, xx=True)


def test_a_task_that_is_told_to_stay_away_holds_its_key_back(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"abc", limit=2)
    give(broker, "p", "d", limit=2)
    put(broker, "q", "free")
    one, two = Hand(broker, "q", "p"), Hand(broker, "q", "p", name="b.2")
    (a,) = one.claim(1)
    turn = one.turn(outcome(a, "limited", delay=30.0, reason="429"), slots=[0] * 5)
    assert (turn.answers, ids(turn.jobs)) == (["ok"], ["free"]), "its queue goes on"
    assert 29 < (turn.next_in or 0) <= 30
    assert two.claim(5) == []
    assert not conn.exists("rq:gates")
    assert (holders(conn), waiting(conn)) == ([], ["b", "c", "d"])
    assert (status_of(conn, "a"), conn.hexists("rq:job:a", "attempts")) == ("scheduled", False)
    assert 29 < (broker.promote()[1] or 0) <= 30
    assert faults(conn) == []
    time_passes(conn, "a")
    broker.promote()
    assert ids(two.claim(5)) == ["a", "b"], "at its old place"
    assert faults(conn) == []


def test_those_of_the_key_that_run_go_on(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"abc", limit=2)
    hand = Hand(broker, "q")
    a, b = hand.claim(2)
    hand.tell(a, "limited", delay=30.0, reason="429")
    assert holders(conn) == ["b"]
    assert hand.turn(outcome(b), slots=[0]).jobs == []
    assert status_of(conn, "b") == "finished"
    assert (holders(conn), waiting(conn)) == ([], ["c"])


def test_a_resend_holds_nothing_back_anew(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"ab")
    hand = Hand(broker, "q")
    (a,) = hand.claim(1)
    hand.token += 1
    for _ in range(2):
        turn = hand.turn(outcome(a, "limited", delay=30.0, reason="429"), slots=[0], token=hand.token)
        assert (turn.answers, turn.jobs) == (["ok"], [])
    conn.hset("rq:limit:k", "held_back", now_ms(conn) + 5000)
    assert hand.turn(outcome(a, "limited", delay=60.0, reason="429")).answers == ["ok"], "it stands already"
    assert left(conn) <= 5


def test_the_longest_hold_counts(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"abc", limit=3)
    hand = Hand(broker, "q")
    for job, seconds in zip(hand.claim(3), (30.0, 60.0, 10.0), strict=True):
        hand.tell(job, "limited", delay=seconds, reason="429")
    assert 59 < left(conn) <= 60
    give(broker, "q", "d")
    assert waiting(conn) == ["d"]
    assert conn.zscore("rq:limits:due", "k") == float(conn.hget("rq:limit:k", "held_back") or 0), (
        "that is when it is looked at again"
    )


def test_neither_a_hold_nor_a_pause_ends_the_other(conn: redis.Redis, broker: Broker, limits: LimitBroker) -> None:
    give(broker, "q", *"ab")
    hand = Hand(broker, "q")
    (a,) = hand.claim(1)
    limits.pause_limit("k", by="ann")
    hand.tell(a, "limited", delay=30.0, reason="429")
    time_passes(conn, "a")
    broker.promote()
    assert waiting(conn) == ["a", "b"], "the person's pause has no end"
    limits.pause_limit("k", 1)
    conn.hset("rq:limit:k", mapping={"held_back": now_ms(conn) + 60_000, "paused": now_ms(conn) - 1})
    conn.zadd("rq:limits:due", {"k": 1})
    broker.promote()
    assert waiting(conn) == ["a", "b"], "the task's hold goes on"
    assert 59 < (broker.promote()[1] or 0) <= 60
    was = limits.resume_limit("k")
    assert was.held_back_until * 1000 > now_ms(conn)
    assert (holders(conn), waiting(conn)) == (["a"], ["b"]), "a person ends both"
    assert faults(conn) == []


def test_it_is_shown_and_not_called_stuck(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"abc", limit=2)
    hand = Hand(broker, "q")
    a, _ = hand.claim(2)
    hand.tell(a, "limited", delay=30.0, reason="429")
    conn.hset("rq:job:b", "started_at", "2020-01-01T00:00:00.000000Z")
    info = info_of(conn)
    assert (info.paused, info.stuck, info.blocked) == (False, False, 1)
    assert info.held_back is not None
    assert abs(info.held_back.timestamp() - now_ms(conn) / 1000 - 30) < 1
    time_passes(conn)
    assert info_of(conn).held_back is None
    assert info_of(conn).stuck


def test_a_hold_that_no_task_could_ask_for_is_none(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a")
    conn.hset("rq:limit:k", "held_back", now_ms(conn) + 2 * DAY)
    hand = Hand(broker, "q")
    (a,) = hand.claim(1)
    assert info_of(conn).held_back is None
    hand.tell(a, "limited", delay=30.0, reason="429")
    assert 29 < left(conn) <= 30, "the clock was set back"


def test_a_pending_cancel_wins_and_the_key_is_held_back_all_the_same(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"ab")
    hand = Hand(broker, "q")
    (a,) = hand.claim(1)
    broker.cancel("a")
    assert hand.tell(a, "limited", delay=30.0, reason="429") == "ok"
    assert (status_of(conn, "a"), hand.claim(2), waiting(conn)) == ("canceled", [], ["b"])


def test_the_death_of_a_worker_neither_makes_a_hold_nor_ends_one(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"abc", limit=2)
    one, two = Hand(broker, "q"), Hand(broker, "q", name="b.2")
    a, _ = one.claim(2)
    broker.deregister("host.1", one.incarnation)
    assert one.turn(outcome(a, "limited", delay=30.0, reason="429")).status == "unregistered", "it told nobody before"
    assert not conn.hexists("rq:limit:k", "held_back")
    a, _ = two.claim(5)
    two.tell(a, "limited", delay=30.0, reason="429")
    broker.deregister("b.2", two.incarnation)
    assert Hand(broker, "q", name="c.3").claim(5) == []
    assert (holders(conn), waiting(conn)) == ([], ["b", "c"])
    assert 29 < left(conn) <= 30
    assert faults(conn) == []


def test_a_key_is_not_forgotten_while_it_is_held_back(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a")
    hand = Hand(broker, "q")
    (a,) = hand.claim(1)
    broker.cancel("a")
    hand.tell(a, "limited", delay=30.0, reason="429")
    conn.zadd("rq:limits", {"k": now_ms(conn) - DAY - 1})
    broker.clean()
    assert conn.hexists("rq:limit:k", "held_back")
    conn.hset("rq:limit:k", "held_back", now_ms(conn) - 1)
    conn.zadd("rq:limits", {"k": now_ms(conn) - DAY - 1})
    broker.clean()
    assert not conn.exists("rq:limit:k")


def test_a_broken_key_fails_no_such_outcome(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"ab")
    hand = Hand(broker, "q")
    (a,) = hand.claim(1)
    conn.delete("rq:limit:k")
    conn.set("rq:limit:k", "theirs")
    assert hand.tell(a, "limited", delay=30.0, reason="429") == "ok"
    assert status_of(conn, "a") == "scheduled"
    assert conn.zcard("rq:wip:q") == 0
