"""Single queues stand still: durable, effective for the next claim, without a bearing on the others."""

from __future__ import annotations

import redis

from fusion.store.layout.pauses import QueuePause
from fusion.store.read.inspector import Inspector
from fusion.store.read.tolerant import Forgiving
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, now_ms, put


def test_nothing_of_a_paused_queue_is_claimed_and_others_go_on(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "email", "e", priority=2)
    put(broker, "sms", "s", priority=0)
    broker.pause("email")
    hand = Hand(broker, "email", "sms")
    assert hand.take().id == "s"
    assert hand.claim() == []
    assert conn.zcard("rq:queue:email") == 1
    assert broker.unpause("email")
    assert hand.take().id == "e"


def test_an_outcome_of_a_paused_queue_is_accepted(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    hand = Hand(broker, "q")
    held = hand.take()
    broker.pause("q")
    assert hand.tell(held, "finished") == "ok"
    assert conn.hget("rq:job:a", "status") == b"finished"


def test_nothing_rings_for_a_paused_queue_and_unpause_rings_if_there_is_work(broker: Broker, conn: redis.Redis) -> None:
    broker.pause("q")
    broker.pause("idle")
    put(broker, "q", "a", priority=2)
    broker.ring("q")
    assert conn.exists("rq:wake:q", "rq:wake:q:high") == 0
    broker.unpause("q")
    broker.unpause("idle")
    assert conn.exists("rq:wake:q", "rq:wake:q:high") == 2
    assert conn.exists("rq:wake:idle") == 0


def test_a_pause_may_end_by_itself(broker: Broker, conn: redis.Redis) -> None:
    broker.pause("q", 100)
    assert 0 < conn.ttl("rq:paused:q") <= 100
    assert broker.unpause("q")
    assert not broker.unpause("q")


def test_a_pause_tells_since_when_by_whom_and_why(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    before = now_ms(conn)
    broker.pause("q", 60, by="deploy@web1", reason="the provider is down: see 4711")
    (info,) = Inspector(conn).queues(["q"])
    assert info.paused
    assert info.pause is not None and info.pause.since is not None and info.pause.left is not None
    assert (info.pause.by, info.pause.reason) == ("deploy@web1", "the provider is down: see 4711")
    assert before <= info.pause.since.timestamp() * 1000 + 1 <= now_ms(conn) + 2
    assert 50 < info.pause.left <= 60
    since = info.pause.since
    broker.pause("q", by="root@web2")
    (info,) = Inspector(conn).queues(["q"])
    assert info.pause == QueuePause(since, None, "root@web2", "")
    assert broker.unpause("q") == info.pause
    assert broker.unpause("q") is None
    assert Inspector(conn).queues(["q"])[0].pause is None


def test_a_part_of_a_second_is_a_pause_too(broker: Broker, conn: redis.Redis) -> None:
    broker.pause("q", 0.5)
    assert 0 < conn.pttl("rq:paused:q") <= 500


def test_a_pause_of_an_older_version_is_one(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    conn.set("rq:paused:q", 1, ex=100)
    (info,) = Inspector(conn).queues(["q"])
    assert info.pause is not None
    assert (info.pause.since, info.pause.by, info.pause.reason) == (None, "", "")
    broker.pause("q", by="me", reason="why")
    assert conn.ttl("rq:paused:q") == -1
    assert Inspector(conn).queues(["q"])[0].pause != info.pause
    conn.set("rq:paused:q", 1)
    assert broker.unpause("q") == QueuePause()


def test_a_key_of_another_type_is_a_pause_as_to_every_worker(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    conn.hset("rq:paused:q", "a", "b")
    assert Hand(broker, "q").claim() == []
    assert Inspector(conn).queues(["q"])[0].paused
    assert Inspector(Forgiving(conn)).queues(["q"])[0].paused
    assert broker.unpause("q") == QueuePause()
    conn.hset("rq:paused:q", "a", "b")
    broker.pause("q", by="me")
    assert conn.get("rq:paused:q").endswith(b" me\n")


def test_resume_of_all_does_not_unpause(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    broker.pause("q")
    broker.suspend()
    broker.resume()
    assert Hand(broker, "q").claim() == []


def test_a_worker_of_very_many_queues(broker: Broker, conn: redis.Redis) -> None:
    """The look for pauses takes a key per queue, and Lua's stack holds 8,000 values."""
    names = [f"q{i}" for i in range(9_000)]
    put(broker, names[-1], "a")
    put(broker, names[0], "b", priority=2)
    broker.pause(names[0])
    hand = Hand(broker, *names)
    assert [job.id for job in hand.claim(2)] == ["a"]
