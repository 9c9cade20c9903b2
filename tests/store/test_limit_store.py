"""What people do with concurrency keys: pin a limit, pause one, take a slot back, look; and what `clean` sees to."""

from __future__ import annotations

import pytest
import redis

from fusion.kernel.rates import Rate
from fusion.store.read.limit_inspector import LimitInspector
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from tests.kit.hands import Hand, events_of, ids, now_ms, outcome, promote_all, put, status_of
from tests.store.limits_hands import faults, give, holders, waiting


def test_a_pinned_limit_holds_whatever_jobs_say(conn: redis.Redis, broker: Broker, limits: LimitBroker) -> None:
    give(broker, "q", *"abcd")
    assert limits.pin_limit("k", 3).max_concurrent == 1
    assert (holders(conn), waiting(conn)) == (["a", "b", "c"], ["d"]), "a raised limit admits at once"
    give(broker, "q", "e", limit=9)
    assert len(holders(conn)) == 3
    hand = Hand(broker, "q")
    hand.claim(1)
    assert limits.pin_limit("k", 2).pinned
    assert (holders(conn), waiting(conn)) == (["a", "b"], ["c", "d", "e"])
    assert faults(conn) == []
    limits.pin_limit("k", None)
    assert len(holders(conn)) == 5, "what the last enqueue said"
    assert faults(conn) == []


def test_a_limit_may_be_pinned_before_there_are_jobs(conn: redis.Redis, broker: Broker, limits: LimitBroker) -> None:
    limits.pin_limit("k", 2)
    give(broker, "q", *"abc")
    assert holders(conn) == ["a", "b"]
    (info,) = LimitInspector(conn).limits(["k"])
    assert info is not None
    assert (info.limit.max_concurrent, info.limit.pinned, info.held, info.active, info.blocked) == (2, True, 2, 0, 1)


def test_a_limit_that_is_raised_by_much_is_settled_in_steps(conn: redis.Redis, broker: Broker, limits: LimitBroker) -> None:
    give(broker, "q", *(f"j{n}" for n in range(250)))
    limits.pin_limit("k", 1000)
    assert len(holders(conn)) == 81
    while broker.promote()[1] is not None:
        pass
    assert (len(holders(conn)), waiting(conn)) == (250, [])
    limits.pin_limit("k", 1)
    while broker.promote()[1] is not None:
        pass
    assert holders(conn) == ["j0"]
    assert faults(conn) == []


def test_no_job_of_a_paused_key_starts(conn: redis.Redis, broker: Broker, limits: LimitBroker) -> None:
    give(broker, "q", *"abc", limit=2)
    give(broker, "q", "other", key="o")
    hand = Hand(broker, "q")
    (a,) = hand.claim(1)
    limits.pause_limit("k", by="ann", reason="the provider is down")
    assert ids(hand.claim(5)) == ["other"]
    assert (holders(conn), waiting(conn)) == (["a"], ["b", "c"])
    hand.tell(a, "release", reason="r")
    assert (holders(conn), waiting(conn)) == ([], ["a", "b", "c"])
    (info,) = LimitInspector(conn).limits(["k"])
    assert info is not None
    assert (info.paused, info.limit.paused_by, info.limit.paused_why, info.stuck) == (True, "ann", "the provider is down", False)
    assert limits.resume_limit("k").paused_until == float("inf")
    assert ids(hand.claim(5)) == ["a", "b"]
    assert limits.resume_limit("k").paused_until == 0
    assert faults(conn) == []


def test_a_pause_ends_by_itself_for_a_job_that_had_a_slot_when_it_began(
    conn: redis.Redis, broker: Broker, limits: LimitBroker
) -> None:
    give(broker, "q", "a")
    limits.pause_limit("k", 60)
    assert (holders(conn), waiting(conn)) == ([], ["a"])
    assert conn.zscore("rq:limits:due", "k") == float(conn.hget("rq:limit:k", "paused") or 0), "somebody is to look then"
    conn.hset("rq:limit:k", "paused", now_ms(conn) - 1)
    conn.zadd("rq:limits:due", {"k": now_ms(conn) - 1})
    broker.promote()
    assert (holders(conn), status_of(conn, "a")) == (["a"], "queued")


def test_a_pause_for_a_time_ends_by_itself(conn: redis.Redis, broker: Broker, limits: LimitBroker) -> None:
    limits.pause_limit("k", 60)
    give(broker, "q", "a")
    assert status_of(conn, "a") == "blocked"
    assert 59 < (broker.promote()[1] or 0) <= 60
    conn.hset("rq:limit:k", "paused", now_ms(conn) - 1)
    conn.zadd("rq:limits:due", {"k": 1})
    broker.promote()
    assert holders(conn) == ["a"]
    (info,) = LimitInspector(conn).limits(["k"])
    assert info is not None
    assert not info.paused


def test_a_slot_is_taken_back_by_hand(conn: redis.Redis, broker: Broker, limits: LimitBroker) -> None:
    give(broker, "q", "a", "b")
    assert not limits.release_slot("k", "a"), "it has not started"
    hand = Hand(broker, "q")
    a = hand.take()
    assert limits.release_slot("k", "a", by="ann")
    assert not limits.release_slot("k", "a")
    assert (status_of(conn, "a"), holders(conn)) == ("started", ["b"])
    assert [event["reason"] for event in events_of(conn, "a") if event["event"] == "slot_released"] == ["ann"]
    hand.tell(a)
    assert holders(conn) == ["b"]


def test_a_key_whose_jobs_wait_in_vain_is_stuck(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "unserved", "a")
    give(broker, "q", "b")
    inspector = LimitInspector(conn)
    assert inspector.stuck_limits() == []
    conn.hset("rq:job:a", "created_at", "2020-01-01T00:00:00.000000Z")
    (stuck,) = inspector.stuck_limits()
    assert [(one.job_id, one.queue, one.status) for one in stuck.holders] == [("a", "unserved", "queued")]
    assert inspector.limit_keys() == ["k"]
    assert inspector.limits(["nothing"]) == [None]


def test_a_stuck_key_is_found_among_thousands_that_were_used_since(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "unserved", "a")
    give(broker, "q", "b")
    conn.hset("rq:job:a", "created_at", "2020-01-01T00:00:00.000000Z")
    conn.zadd("rq:limits", {"k": 1.0} | {f"idle{n}": 2.0 + n for n in range(5000)})
    assert [one.limit.key for one in LimitInspector(conn).stuck_limits()] == ["k"]
    conn.zadd("rq:limits", {"k": 1e14})
    for n in range(6):
        give(broker, "q", f"first{n}", f"second{n}", key=f"fine{n}")
        conn.zadd("rq:limits", {f"fine{n}": 10.0 + n})
    assert [one.limit.key for one in LimitInspector(conn).stuck_limits(4)] == ["k"]


# -- rates


def spent(conn: redis.Redis, key: str = "k") -> None:
    """As if all tokens of the key's rate had come back."""
    conn.hdel(f"rq:limit:{key}", "tat")
    conn.zadd("rq:limits:due", {key: 1})


def test_as_many_jobs_of_a_rated_key_are_admitted_as_may_start(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"abcdef", limit=None, rate="60/60000/2")
    assert (holders(conn), waiting(conn)) == (["a", "b"], ["c", "d", "e", "f"])
    assert not conn.hexists("rq:limit:k", "tat"), "nothing is spent by arriving"
    hand = Hand(broker, "q")
    turn = hand.turn(slots=[0] * 5)
    assert ids(turn.jobs) == ["a", "b"]
    assert 0.9 < (turn.next_in or 0) <= 1.001
    assert hand.turn(slots=[0] * 5).jobs == []
    spent(conn)
    broker.promote()
    assert ids(hand.claim(5)) == ["c", "d"]
    assert waiting(conn) == ["e", "f"]


def test_the_next_token_admits_the_next_one(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"abc", limit=None, rate="100/1000/1")
    hand, order = Hand(broker, "q"), []
    began = now_ms(conn)
    while len(order) < 3:
        broker.promote()
        order += ids(hand.claim(5))
    assert order == ["a", "b", "c"]
    assert now_ms(conn) - began >= 19, "three at 100 a second"


def test_a_key_has_a_limit_and_a_rate(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", *"abcd", limit=1, rate="60/60000/2")
    hand = Hand(broker, "q")
    (a,) = hand.claim(5)
    (b,) = hand.turn(outcome(a), slots=[0] * 3).jobs
    assert hand.turn(outcome(b), slots=[0] * 3).jobs == []
    assert waiting(conn) == ["c", "d"]
    spent(conn)
    broker.promote()
    assert ids(hand.claim(5)) == ["c"]


def test_a_pinned_rate_holds_whatever_jobs_say(conn: redis.Redis, broker: Broker, limits: LimitBroker) -> None:
    give(broker, "q", *"abc", limit=9)
    assert len(holders(conn)) == 3
    limits.pin_rate("k", Rate.parse("1/60s"))
    assert (holders(conn), waiting(conn)) == (["a"], ["b", "c"])
    hand = Hand(broker, "q")
    assert ids(hand.claim(5)) == ["a"]
    assert hand.claim(5) == []
    limits.pin_rate("k", None)
    assert ids(hand.claim(5)) == ["b", "c"]


def test_a_released_job_spends_another_token(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", limit=None, rate="60/60000/1")
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "release", reason="r")
    assert hand.claim() == []
    assert status_of(conn, "a") == "blocked"
    spent(conn)
    broker.promote()
    assert ids(hand.claim()) == ["a"]


# -- the audit


def clean(conn: redis.Redis) -> int:
    Broker(conn).clean()
    return LimitInspector(conn).limits_audit()


def test_the_audit_finds_nothing_where_nothing_is_wrong(conn: redis.Redis, broker: Broker, limits: LimitBroker) -> None:
    give(broker, "q", *"abc", limit=2)
    give(broker, "q", "r1", "r2", key="r", limit=None, rate="1/60000/1")
    give(broker, "q", "p1", key="p")
    limits.pause_limit("p")
    hand = Hand(broker, "q")
    hand.claim(1)
    hand.tell(hand.take(), "retry", reason="r", delay=60.0, fields={"keep_slot": "1"})
    assert clean(conn) == 0
    assert conn.exists("rq:limits:audit") == 0


@pytest.mark.parametrize("wrong", ["gone", "ended", "of another key", "not handed on"])
def test_the_audit_mends_and_counts_what_is_wrong(conn: redis.Redis, broker: Broker, wrong: str) -> None:
    give(broker, "q", "a", "b")
    if wrong == "gone":
        conn.delete("rq:job:a")
    elif wrong == "ended":
        conn.hset("rq:job:a", "status", "finished")
    elif wrong == "of another key":
        conn.hset("rq:job:a", "concurrency_key", "o")
    else:
        conn.zrem("rq:limits:held:k", "a")
    assert clean(conn) == 1
    assert (holders(conn), waiting(conn)) == (["b"], [])
    assert clean(conn) == 1, "once"


def test_a_key_goes_a_day_after_its_last_job(conn: redis.Redis, broker: Broker, limits: LimitBroker) -> None:
    give(broker, "q", "a")
    give(broker, "q", "b", key="busy")
    limits.pin_limit("pinned", 5)
    hand = Hand(broker, "q")
    hand.tell(hand.take())
    long_ago = now_ms(conn) - 86_400_001
    clean(conn)
    assert conn.exists("rq:limit:k")
    conn.zadd("rq:limits", {"k": long_ago, "busy": long_ago, "pinned": long_ago})
    clean(conn)
    assert sorted(LimitInspector(conn).limit_keys()) == ["busy", "pinned"]
    assert not conn.exists("rq:limit:k")
    assert conn.zscore("rq:limits", "busy") > long_ago


def test_more_slots_than_are_taken_back_at_once_let_nobody_start(conn: redis.Redis, broker: Broker, limits: LimitBroker) -> None:
    give(broker, "q", *(f"j{n}" for n in range(250)), limit=250)
    hand = Hand(broker, "q")
    limits.pause_limit("k")
    assert hand.claim(5) == [], "a paused key"
    limits.resume_limit("k")
    while broker.promote()[1] is not None:
        pass
    limits.pin_limit("k", 3)
    assert ids(hand.claim(5)) == ["j0", "j1", "j2"], "a limit that is far less by now"
    while broker.promote()[1] is not None:
        pass
    assert faults(conn) == []


def test_a_slow_rate_is_not_forgotten_with_its_key(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", key="slow", limit=None, rate="1/604800000/1")
    hand = Hand(broker, "q")
    hand.tell(hand.take())
    conn.zadd("rq:limits", {"slow": now_ms(conn) - 2 * 86_400_000})
    broker.clean()
    give(broker, "q", "b", key="slow", limit=None, rate="1/604800000/1")
    assert hand.claim(1) == [], "one in seven days"


@pytest.mark.parametrize("part", ["limit:k", "limits:held:k", "limits:waiting:k", "limits:due"])
def test_a_broken_key_keeps_no_others_waiting(conn: redis.Redis, broker: Broker, part: str) -> None:
    give(broker, "q", *"abc", rate="100/1000/5", ties="kt", limit_duration=60_000)
    put(broker, "q", "other")
    kept = conn.dump(f"rq:{part}")
    conn.set(f"rq:{part}", "broken")
    hand = Hand(broker, "q")
    turn = hand.turn(slots=[0] * 4)
    started = ids(turn.jobs)
    assert started in (["other"], ["a", "other"])
    assert set(hand.turn(*(outcome(job) for job in turn.jobs)).answers) == {"ok"}
    assert [status_of(conn, job_id) for job_id in started] == ["finished"] * len(started)
    conn.delete(f"rq:{part}")
    if kept:
        conn.restore(f"rq:{part}", 0, kept)
    order = list[str]()
    for _ in range(4):
        promote_all(broker, conn)
        conn.zadd("rq:limits", {"k": now_ms(conn)})
        broker.clean()
        for job in hand.claim(1):
            order.append(job.id)
            hand.tell(job)
    assert sorted(order) == [one for one in "abc" if one not in started]
    assert faults(conn) == []


def test_a_job_that_is_to_run_alone_is_next_again_after_a_pause_of_its_key(
    conn: redis.Redis, broker: Broker, limits: LimitBroker
) -> None:
    give(broker, "q", *"ab")
    conn.hset("rq:job:a", mapping={"lost": 3, "deliveries": 3})
    others, lone = Hand(broker, "q"), Hand(broker, "q", name="lone.1", alone=True)
    assert others.turn(slots=[0]).jobs == []
    assert (status_of(conn, "a"), holders(conn)) == ("blocked", ["a"])
    limits.pause_limit("k")
    limits.resume_limit("k")
    assert faults(conn) == []
    order = [job.id for _ in range(4) for hand in (others, lone) for job in hand.turn(slots=[0]).jobs if hand.tell(job) == "ok"]
    assert order == ["a", "b"]
