"""Lifetime counters: each way in and out counts once, whatever is sent again; the sum is exact at every moment."""

from __future__ import annotations

import os
import random
import secrets
from multiprocessing import get_context

import pytest
import redis

from fusion import Queue
from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from fusion.views.queue import QueueView
from tests.faults.rig.conservation import check_totals
from tests.kit import guarded
from tests.kit.hands import Hand, expire_lease, may_reap, new, outcome, put
from tests.store.limits_hands import give
from tools import lua_build
from tools.check_lua import sources

pytestmark = pytest.mark.usefixtures("checked")


@pytest.fixture
def checked(conn: redis.Redis) -> object:
    """What came in is what went out and what is there, at the end of each test."""
    yield
    check_totals(conn)


def totals(conn: redis.Redis, queue: str = "q") -> dict[str, int]:
    return {name: count for name, count in Inspector(conn).counters(queue).totals.items() if count}


def test_every_script_that_counts_writes_it_down() -> None:
    texts = sources()
    for name, text in texts.items():
        if not name.startswith("include/"):
            pieces = lua_build.in_order(lua_build.headers(text).get("INCLUDE", ()), lambda piece: texts[f"include/{piece}"])
            if any("tally('" in texts[f"include/{one}"] for one in pieces if one != "count") or "tally('" in text:
                assert "write_tallies()" in text, name


def test_each_end_is_counted_once(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "done", "failed", "canceled", "retried", "released")
    put(broker, "q", "old", ttl=60)
    jobs = {job.id: job for job in hand.claim(5)}
    hand.turn(
        outcome(jobs["done"]),
        outcome(jobs["failed"], "failed", reason="r"),
        outcome(jobs["retried"], "retry", reason="r", delay=60),
        outcome(jobs["released"], "release", reason="r"),
    )
    broker.cancel("canceled")
    hand.tell(jobs["canceled"], "release", reason="r")
    conn.hset("rq:job:old", "expires_at", 1)
    conn.zadd("rq:expiring", {"old": 1})
    broker.expire(10)
    assert totals(conn) == {"enqueued": 6, "completed": 1, "failed": 1, "canceled": 1, "expired": 1}
    assert broker.requeue(["failed"], "n") == ["ok"]
    broker.delete(["failed", "retried", "done"])
    broker.empty("q")
    assert totals(conn) == {"enqueued": 6, "requeued": 1, "completed": 1, "failed": 1, "canceled": 1, "expired": 1, "deleted": 3}


def test_a_resent_call_is_not_counted_again(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    jobs = [new("a"), new("b")]
    for _ in range(2):
        broker.enqueue("q", jobs, "nonce")
    a, b = hand.claim(2)
    for _ in range(3):
        hand.turn(outcome(a), outcome(b, "failed", reason="r"), token=2)
    hand.token = 2
    for _ in range(2):
        broker.requeue(["b"], "n")
    for _ in range(2):
        broker.cancel("b")
    for _ in range(2):
        broker.delete(["b"])
    assert totals(conn) == {"enqueued": 2, "requeued": 1, "completed": 1, "failed": 1, "canceled": 1}


def test_a_commit_is_counted_though_the_claim_fails(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    with pytest.raises(redis.ResponseError):
        hand.turn(outcome(claimed), slots=["no number"])  # type: ignore[list-item]
    assert totals(conn) == {"enqueued": 1, "completed": 1}


def test_a_key_has_counters_of_its_own(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """Whatever way its jobs go; they go with the key, a day after it was used last."""
    for job_id in ("done", "failed", "deleted", "emptied"):
        put(broker, "q", job_id, ties="k", concurrency_key="user:1", max_concurrent=2)
    put(broker, "q", "without")
    done, failed = hand.claim(2)
    hand.turn(outcome(done), outcome(failed, "failed", reason="r"))
    broker.requeue(["failed"], "n")
    broker.delete(["deleted"])
    broker.empty("q")
    found, held, waiting = Inspector(conn).key_counters("user:1")
    assert {name: count for name, count in found.totals.items() if count} == {
        "enqueued": 4, "requeued": 1, "completed": 1, "failed": 1, "deleted": 3,
    }  # fmt: skip
    assert (held, waiting, found.there) == (0, 0, 0)
    assert conn.zscore("rq:limits", "user:1") is not None


def test_by_priority(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b", priority=2)
    put(broker, "q", "c", priority=0)
    hand.tell(hand.take())
    found = Inspector(conn).counters("q").by_priority
    assert found == {0: {"enqueued": 1}, 2: {"enqueued": 2, "completed": 1}}


def test_priorities_over_the_highest_name_count_with_it(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    for priority in (2, 3, 101, 255):
        put(broker, "q", f"p{priority}", priority=priority)
    hand.tell(hand.take())
    assert Inspector(conn).counters("q").by_priority == {2: {"enqueued": 4, "completed": 1}}
    check_totals(conn)


def test_a_scheduled_job_came_in(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", delay=60)
    assert totals(conn) == {"enqueued": 1}
    check_totals(conn)
    broker.delete(["a"])
    assert totals(conn) == {"enqueued": 1, "deleted": 1}


def test_the_lost_and_the_poisoned(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "again", "fails", on_lost="again")
    put(broker, "q", "poison", on_lost="fail")
    hand.claim(3)
    may_reap(conn)
    expire_lease(conn, "q", "again", "fails", "poison")
    broker.reap(30, 0)
    assert totals(conn) == {"enqueued": 3, "failed": 1}


def test_old_producers_and_outsiders(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """They come in when they are met; what leads to no job, too."""
    for job_id in ("claimed", "canceled", "deleted", "cleaned", "moved"):
        conn.hset(f"rq:job:{job_id}", mapping={"data": '["t",null,[],{}]', "origin": "q", "status": "queued"})
        conn.zadd("rq:queue:q", {job_id: 1})
    conn.sadd("rq:queues", "rq:queue:q")
    conn.zadd("rq:queue:q", {"nothing": 2})
    check_totals(conn)
    broker.cancel("canceled")
    broker.delete(["deleted"])
    assert totals(conn) == {"enqueued": 2, "canceled": 1, "deleted": 1}
    broker.clean(interval=0)
    assert totals(conn)["enqueued"] == 6
    conn.zrem("rq:queue:q", "moved")
    conn.sadd("rq:queues", "rq:queue:other")
    conn.zadd("rq:queue:other", {"moved": 1})
    for claimed in hand.claim(9):
        hand.tell(claimed)
    other = Hand(broker, "other", name="host.2")
    other.tell(other.take())
    assert totals(conn) == {"enqueued": 6, "completed": 2, "failed": 1, "canceled": 1, "deleted": 2}
    assert totals(conn, "other") == {"requeued": 1, "completed": 1}


def test_the_inbox(broker: Broker, conn: redis.Redis) -> None:
    conn.hset("rq:job:theirs", mapping={"data": '["t",null,[],{}]'})
    conn.rpush("rq:queue:scheduler", "theirs", "nothing")
    conn.sadd("rq:queues", "rq:queue:scheduler")
    put(broker, "scheduler", "ours")
    hand = Hand(broker, "scheduler")
    for claimed in hand.claim(5):
        hand.tell(claimed)
    assert totals(conn, "scheduler") == {"enqueued": 3, "completed": 2, "failed": 1}


def test_a_record_that_vanished(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    conn.delete("rq:job:a")
    assert [job.id for job in hand.claim(2)] == ["b"]
    conn.delete("rq:job:b")
    may_reap(conn)
    expire_lease(conn, "q", "b")
    broker.reap(30, 0)
    assert totals(conn) == {"enqueued": 2, "failed": 2}


def test_an_enqueue_works_when_its_counter_is_broken(broker: Broker, conn: redis.Redis) -> None:
    conn.set("rq:totals:q", "another's")
    put(broker, "q", "a")
    assert conn.zcard("rq:queue:q") == 1
    conn.delete("rq:totals:q", "rq:job:a", "rq:queue:q")


def test_counters_of_a_forgotten_queue_go_a_month_later(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", result_ttl=0)
    put(broker, "kept", "b", delay=60)
    hand.tell(hand.take())
    now = conn.time()[0] * 1000
    conn.srem("rq:queues", "rq:queue:q", "rq:queue:kept")
    conn.zadd("rq:totals", {"q": now - 29 * 86400_000})
    broker.clean(interval=0)
    assert totals(conn)
    conn.zadd("rq:totals", {"q": now - 31 * 86400_000, "kept": now - 31 * 86400_000})
    broker.clean(interval=0)
    assert conn.exists("rq:totals:q", "rq:totals") == 0
    assert totals(conn, "kept") == {"enqueued": 1}, "it has a job in the schedule"


def test_stats_of_a_queue(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b", "c")
    hand.tell(hand.take())
    hand.take()
    found = Queue("q", conn).stats()
    assert (found.queue_length, found.active_count, found.max_concurrent) == (1, 1, None)
    assert (found.totals["enqueued"], found.totals["completed"], found.totals["failed"]) == (3, 1, 0)
    assert found.oldest_enqueued_at is not None
    assert found.oldest_enqueued_at <= found.last_updated
    assert found.counters.there == 2


def test_jobs_that_are_blocked_count_to_the_length_of_a_queue(broker: Broker, conn: redis.Redis) -> None:
    give(broker, "q", "a", "b", "c")
    put(broker, "q", "d")
    found = Queue("q", conn).stats()
    assert (found.queue_length, found.queued_count, found.info.blocked) == (4, 2, 2)
    view = QueueView.of(found.info)
    assert (view.queue_length, view.queued_count, view.blocked_count) == (4, 2, 2), "over HTTP, too"


def _people(url: str, seed: int) -> None:
    """A producer, a worker or somebody who deletes, by its number."""
    conn = guarded.client(url)
    broker, chance = Broker(conn), random.Random(seed)
    hand = Hand(broker, "q", "r", name=f"host.{seed}") if seed % 3 == 1 else None
    for i in range(40):
        if seed % 3 == 0:
            ids = [f"{seed}-{i}-{k}" for k in range(chance.randint(1, 5))]
            queue, nonce = chance.choice("qr"), secrets.token_hex(6)
            for _ in range(chance.randint(1, 2)):
                broker.enqueue(queue, [new(job_id, chance.randint(0, 0)) for job_id in ids], nonce)
        elif hand is not None:
            told = [outcome(job, chance.choice(["finished", "failed", "release", "retry"]), reason="r") for job in hand.claim(3)]
            hand.turn(*told)
            hand.turn(*told, token=hand.token)
        else:
            found = [key.decode().removeprefix("rq:job:") for key in conn.scan(0, "rq:job:*", 50)[1]]
            found = [job_id for job_id in found if ":" not in job_id]
            broker.delete(found[:2])
            for job_id in found[2:4]:
                broker.cancel(job_id)
            broker.requeue(found[4:8], secrets.token_hex(6))
            if chance.random() < 0.1:
                broker.empty(chance.choice("qr"))
    if hand is not None:
        broker.deregister(hand.name, hand.incarnation)
    os._exit(0)


@pytest.mark.long
@pytest.mark.timeout(60)
def test_twenty_at_once(redis_url: str, conn: redis.Redis) -> None:
    processes = [get_context("fork").Process(target=_people, args=(redis_url, seed)) for seed in range(20)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(50)
    assert [process.exitcode for process in processes] == [0] * 20
    check_totals(conn)
    found = totals(conn)
    assert {"enqueued", "completed", "failed", "deleted", "requeued", "canceled"} <= set(found)
