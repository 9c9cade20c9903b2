"""Jobs whose ttl is over, wherever they wait."""

from __future__ import annotations

import dataclasses
import threading

import pytest
import redis

from fusion import Queue
from fusion.store.client.connections import connect
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, events_of, everything, fields_of, ids, new, now_ms, over, put, status_of

EXPIRING = "rq:expiring"


def _indexed(conn: redis.Redis) -> dict[str, int]:
    return {job_id.decode(): int(score) for job_id, score in conn.zrange(EXPIRING, 0, -1, withscores=True)}


def test_queued_scheduled_and_in_an_inbox_they_end_where_they_are(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "queued", ttl=60)
    put(broker, "q", "scheduled", ttl=60, delay=1000.0)
    put(broker, "scheduler", "boxed", ttl=60)
    put(broker, "q", "for-ever")
    put(broker, "q", "in-time", ttl=60)
    broker.pause("q")
    broker.suspend()
    over(conn, "queued", "scheduled", "boxed")
    ended, next_in = broker.expire()
    assert (ended, next_in) == (3, pytest.approx(60, abs=2))
    for job_id in ("queued", "scheduled", "boxed"):
        found = fields_of(conn, job_id)
        assert (found["status"], found["reason"], bool(found["ended_at"])) == ("canceled", "expired", True)
        assert [event["event"] for event in events_of(conn, job_id)][1:] == ["expired"]
    states = check_conservation(conn, ["queued", "scheduled", "boxed", "for-ever", "in-time"])
    assert list(states.values()) == ["canceled"] * 3 + ["queued"] * 2
    assert list(_indexed(conn)) == ["in-time"]
    assert broker.expire()[0] == 0, "nothing twice"


def test_an_expired_job_gets_its_callback(broker: Broker, conn: redis.Redis) -> None:
    Queue("q", conn).enqueue("tasks.sms.sendSMS", job_id="j", ttl=60, failed_task_handler="https://x.example/")
    over(conn, "j")
    assert broker.expire()[0] == 1
    assert conn.zcard("rq:queue:_callbacks") == 1


def test_promote_returns_when_the_next_job_is_due(broker: Broker, conn: redis.Redis) -> None:
    assert broker.promote() == (0, None, None, None)
    put(broker, "q", "a", ttl=30)
    assert broker.promote()[2] == pytest.approx(30, abs=1)
    over(conn, "a")
    assert broker.promote() == (0, None, 0, None)
    conn.set(EXPIRING, "junk")
    assert broker.promote() == (0, None, 0, None), "a call for more reports that it is broken"
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        broker.expire()


def test_only_jobs_that_wait_and_have_a_ttl_are_in_the_index(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "none")
    assert conn.exists(EXPIRING) == 0, "a job without a ttl pays nothing"
    names = ("finished", "retried", "released", "lost", "held", "failed")
    put(broker, "q", *names, ttl=60)
    put(broker, "q", "canceled", "deleted", ttl=60)
    before = _indexed(conn)
    assert set(before) == {*names, "canceled", "deleted"}
    held = {job.id: job for job in hand.claim(7)}
    assert set(_indexed(conn)) == {"canceled", "deleted"}
    broker.cancel("canceled")
    broker.delete(["deleted"])
    assert _indexed(conn) == {}
    for job_id, kind in (
        ("finished", "finished"),
        ("retried", "retry"),
        ("released", "release"),
        ("lost", "lost"),
        ("held", "held"),
    ):
        hand.tell(held[job_id], kind, reason="r", delay=50.0)
    hand.tell(held["failed"], "failed", reason="r")
    waiting = {job_id: before[job_id] for job_id in ("retried", "released", "lost", "held")}
    assert _indexed(conn) == waiting, "at each claim it is looked at again"
    conn.hset("rq:job:failed", "ttl", 90)
    assert broker.requeue(["failed"], "n") == ["ok"]
    assert _indexed(conn)["failed"] > before["failed"]
    broker.empty("q")
    assert set(_indexed(conn)) == {"retried", "held"}
    over(conn, "retried", "held")
    assert broker.expire()[0] == 2
    assert {status_of(conn, job_id) for job_id in ("retried", "held")} == {"canceled"}


def test_rescheduled_it_moves_along(broker: Broker, conn: redis.Redis) -> None:
    job = new("a", ttl=60, delay=10.0)
    broker.enqueue("q", [dataclasses.replace(job, fields={**job.fields, "ttl": 60})], "n")
    due = now_ms(conn) / 1000 + 500
    assert broker.reschedule("a", due) == "ok"
    assert _indexed(conn) == {"a": round(due * 1000) + 60_000}


def test_the_job_says_whether_the_index_only_where_to_look(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """What older versions leave there: nothing is ended that runs, has ended, has no ttl or was given more time."""
    put(broker, "q", "running", "finished", ttl=60)
    put(broker, "q", "more", "none", ttl=60)
    running, finished = hand.claim(2)
    hand.tell(finished)
    conn.hdel("rq:job:none", "expires_at")
    conn.zadd(EXPIRING, dict.fromkeys(["running", "finished", "more", "none", "nobody", "not an id\n"], 1))
    before = {key: value for key, value in everything(conn).items() if key != EXPIRING}
    assert broker.expire()[0] == 0
    assert {key: value for key, value in everything(conn).items() if key != EXPIRING} == before
    assert _indexed(conn) == {"more": int(fields_of(conn, "more")["expires_at"])}
    assert hand.tell(running, "retry", reason="r", delay=5.0) == "ok"
    assert set(_indexed(conn)) == {"more", "running"}


def test_a_broken_queue_is_put_off_and_keeps_no_other_waiting(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "bad", "b", ttl=60)
    put(broker, "q", "a", ttl=60)
    over(conn, "a", "b")
    conn.set("rq:queue:bad", "junk")
    assert broker.expire() == (1, pytest.approx(30, abs=1))
    assert (status_of(conn, "a"), status_of(conn, "b")) == ("canceled", "queued")
    conn.delete("rq:queue:bad")
    conn.zadd("rq:queue:bad", {"b": 1.5})
    conn.zadd(EXPIRING, {"b": 1})
    assert broker.expire()[0] == 1
    assert check_conservation(conn, ["b"]) == {"b": "canceled"}


def test_a_broken_index_stops_no_other_call(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    conn.set(EXPIRING, "junk")
    put(broker, "q", "a", "b", "c", ttl=60)
    assert broker.cancel("c") == "canceled"
    conn.hset("rq:job:b", "expires_at", 1)
    assert hand.tell(hand.take(), "retry", reason="r") == "ok"
    assert ids(hand.claim(3)) == ["a"]
    assert fields_of(conn, "b")["reason"] == "expired", "a claim looks at the job itself"


def test_bounded(broker: Broker, conn: redis.Redis) -> None:
    names = [f"j{i}" for i in range(25)]
    put(broker, "q", *names, ttl=60)
    over(conn, *names)
    assert [broker.expire(10) for _ in range(4)] == [(10, 0), (10, 0), (5, None), (0, None)]
    assert set(check_conservation(conn, names).values()) == {"canceled"}


def test_claims_and_sweeps_at_once(conn: redis.Redis, redis_url: str) -> None:
    """Each job ends or starts, once."""
    names = [f"j{i}" for i in range(600)]
    broker = Broker(conn)
    for start in range(0, 600, 100):
        put(broker, "q", *names[start : start + 100], ttl=60)
    over(conn, *names[::2])
    swept, claimed = [0], list[str]()

    def sweep() -> None:
        client = connect(redis_url)
        while (answer := Broker(client).expire(7))[1] is not None and answer[1] <= 0:
            swept[0] += answer[0]
        client.close()

    def claim(name: str) -> None:
        client = connect(redis_url)
        mine = Hand(Broker(client), "q", name=name)
        while (turn := mine.turn(slots=[0] * 3)).jobs or turn.again:
            claimed.extend(ids(turn.jobs))
        client.close()

    threads = [threading.Thread(target=sweep) for _ in range(2)] + [
        threading.Thread(target=claim, args=(f"w.{i}",)) for i in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(claimed) == sorted(names[1::2])
    told = [event["job_id"] for event in events_of(conn) if event["event"] == "expired"]
    assert sorted(told) == sorted(names[::2])
    assert set(check_conservation(conn, names).values()) == {"started", "canceled"}
    assert conn.exists(EXPIRING) == 0


# -- many at the head of a queue


@pytest.mark.parametrize("known", [True, False], ids=["in the index", "an older producer's"])
def test_a_fresh_job_behind_thousands_that_have_expired(broker: Broker, conn: redis.Redis, known: bool) -> None:
    """They are passed by hundreds; each has its event all the same."""
    hand, names = Hand(broker, "q"), [f"j{i}" for i in range(3000)]
    for start in range(0, 3000, 500):
        put(broker, "q", *names[start : start + 500], priority=2, ttl=60)
    pipe = conn.pipeline()
    for job_id in names:
        pipe.hset(f"rq:job:{job_id}", "expires_at", 1)
    pipe.execute()
    conn.zadd(EXPIRING, dict.fromkeys(names, 1))
    if not known:
        conn.delete(EXPIRING)
    put(broker, "q", "fresh", priority=2, ttl=60)
    put(broker, "q", "low", priority=0)
    turns = 0
    found: list[str] = []
    while not found:
        turns += 1
        assert turns <= 10, "20 a turn would be 150"
        turn = hand.turn(slots=[0])
        assert turn.again or turn.jobs
        found = ids(turn.jobs)
    assert found == ["fresh"]
    assert hand.take().id == "low", "of whatever class"
    check_conservation(conn, [*names, "fresh"])
    while (answer := broker.expire(500))[1] is not None and answer[1] <= 0:
        pass
    assert set(check_conservation(conn, names).values()) == {"canceled"}
    assert sum(event["event"] == "expired" for event in events_of(conn)) == 3000


def test_claims_end_what_was_set_aside_if_nobody_else_does(broker: Broker, conn: redis.Redis) -> None:
    hand, names = Hand(broker, "q"), [f"j{i}" for i in range(100)]
    put(broker, "q", *names, ttl=60)
    over(conn, *names)
    while hand.turn(slots=[0]).again:
        pass
    assert set(check_conservation(conn, names).values()) == {"canceled"}
    assert conn.exists(EXPIRING, "rq:queue:q") == 0


def test_a_job_expired_by_mistake_gets_its_place_back(broker: Broker, conn: redis.Redis) -> None:
    """An older version, or a clock set back, gave it more time than the index says."""
    hand = Hand(broker, "q")
    put(broker, "q", "mistaken", "second", ttl=60)
    conn.zadd(EXPIRING, {"mistaken": 1})
    conn.zadd("rq:queue:q", {"mistaken": -0.5})
    assert broker.expire()[0] == 0
    assert drain(hand, 1) == ["mistaken", "second"]
