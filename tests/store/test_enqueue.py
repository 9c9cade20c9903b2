"""Accepting jobs: order, priorities, identity, all or nothing."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

import pytest
import redis

from fusion.exceptions import DuplicateJob
from fusion.kernel.timeutil import from_iso
from fusion.store.layout.score import priority_of, score_of
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import TASK, Hand, drain, events_of, everything, fields_of, ids, new, now_ms, put, wire
from tests.kit.promises import claim
from tests.kit.servers import SpawnedServer


@claim("P10")
def test_order_of_arrival_inside_a_priority_whatever_the_ids(broker: Broker) -> None:
    """P10: equal scores sort by the bytes of their members, so every job needs a score of its own."""
    rng = random.Random(7)
    kinds = [
        lambda i: f"{99999 - i:05d}",
        lambda i: f"z{i}",
        lambda i: str(uuid.UUID(int=rng.getrandbits(128))),
        lambda i: f"a-{i:05d}",
    ]
    arrived = [kinds[i % 4](i) for i in range(10_000)]
    for start in range(0, len(arrived), 500):
        put(broker, "q", *arrived[start : start + 500])
    assert drain(Hand(broker, "q"), 200) == arrived


def test_every_priority_from_0_to_255_runs_before_the_one_below(broker: Broker) -> None:
    order = list(range(256))
    random.Random(3).shuffle(order)
    for priority in order:
        put(broker, "q", f"first-{priority}", f"second-{priority}", priority=priority)
    expected = [f"{place}-{priority}" for priority in range(255, -1, -1) for place in ("first", "second")]
    assert drain(Hand(broker, "q")) == expected


def test_at_front_comes_before_its_own_priority_only(broker: Broker) -> None:
    put(broker, "q", "low", priority=0)
    put(broker, "q", "a", "b")
    put(broker, "q", "high", priority=2)
    put(broker, "q", "front-1", front=True)
    put(broker, "q", "front-2", front=True)
    assert drain(Hand(broker, "q")) == ["high", "front-2", "front-1", "a", "b", "low"]


def test_the_score_is_what_python_computes(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b", priority=2)
    put(broker, "q", "c", priority=255)
    put(broker, "q", "f", priority=0, front=True)
    for job_id, priority in (("a", 2), ("b", 2), ("c", 255), ("f", 0)):
        score = conn.zscore("rq:queue:q", job_id)
        assert score == score_of(priority, int(fields_of(conn, job_id)["seq"]))
        assert priority_of(score) == priority


def test_what_the_hash_of_a_new_job_holds(broker: Broker, conn: redis.Redis) -> None:
    before = now_ms(conn)
    at = broker.enqueue("sms", [new("j", 2, description="d", meta=None, timeout=1.5, ttl=9)], "n1")
    found = fields_of(conn, "j")
    assert found == {
        "status": "queued", "origin": "sms", "created_at": at, "priority": "2", "seq": "1", "nonce": "n1", "func": TASK, "description": "d",
        "timeout": "1.5", "data": "[[],{}]", "expires_at": found["expires_at"],
    }  # fmt: skip
    moment = from_iso(at)
    assert moment is not None
    assert before <= moment.timestamp() * 1000 + 1
    assert at.endswith("Z")
    assert 9000 <= int(found["expires_at"]) - before < 14_000
    assert conn.smembers("rq:queues") == {b"rq:queue:sms"}
    assert conn.ttl("rq:job:j") == -1


def test_an_event_for_each_job_numbered_without_a_gap(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b", log_tag="SMS_OTP")
    put(broker, "r", "c", priority=2)
    found = events_of(conn)
    assert [(e["event"], e["job_id"], e["queue"], e["log_tag"], e["priority"]) for e in found] == [
        ("queued", "a", "q", "SMS_OTP", "1"),
        ("queued", "b", "q", "SMS_OTP", "1"),
        ("queued", "c", "r", "", "2"),
    ]
    assert [int(e["n"]) for e in found] == [1, 2, 3]
    assert len({e["epoch"] for e in found}) == 1


@pytest.mark.parametrize("queue", ["q", "scheduler"])
def test_an_arrival_rings_and_its_resend_does_not(broker: Broker, conn: redis.Redis, queue: str) -> None:
    broker.enqueue(queue, [new("a"), new("b")], "nonce")
    assert conn.lrange(f"rq:wake:{queue}", 0, -1) == [b"1"]
    conn.delete(f"rq:wake:{queue}")
    broker.enqueue(queue, [new("a"), new("b")], "nonce")
    assert not conn.exists(f"rq:wake:{queue}")


def test_one_round_trip(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "warm-up")
    with wire(conn) as sent:
        put(broker, "q", "a")
        put(broker, "q", *(f"many-{i}" for i in range(500)))
    assert sent == ["EVALSHA", "EVALSHA"]


def test_a_live_job_is_not_replaced(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "taken", description="the first")
    before = everything(conn)
    with pytest.raises(DuplicateJob) as caught:
        broker.enqueue("q", [new("other"), new("taken", description="the second")], "n2")
    assert (caught.value.job_id, caught.value.status) == ("taken", "queued")
    assert everything(conn) == before, "all or none"
    Hand(broker, "q").take()
    with pytest.raises(DuplicateJob, match="is started"):
        put(broker, "other-queue", "taken")


def test_the_same_id_twice_in_one_call_is_refused_whole(broker: Broker, conn: redis.Redis) -> None:
    with pytest.raises(DuplicateJob):
        put(broker, "q", "a", "b", "a")
    assert everything(conn) == {}


@pytest.mark.parametrize("end", ["finished", "failed", "canceled"])
def test_an_ended_jobs_id_may_live_again(broker: Broker, conn: redis.Redis, end: str) -> None:
    put(broker, "old", "a", meta='{"old": 1}')
    hand = Hand(broker, "old", "new")
    if end == "canceled":
        broker.cancel("a")
    else:
        hand.tell(hand.take(), end, reason="r", fields={"exc_info": "trace"} if end == "failed" else {"result": "1"})
    assert check_conservation(conn, ["a"]) == {"a": end}
    put(broker, "new", "a")
    assert check_conservation(conn, ["a"]) == {"a": "queued"}
    assert not {"meta", "result", "exc_info", "ended_at", "reason", "attempts", "execution_id"} & set(fields_of(conn, "a"))
    assert conn.ttl("rq:job:a") == -1
    assert ids(hand.claim()) == ["a"]


def test_a_resend_answers_as_the_first_time_and_changes_nothing(broker: Broker, conn: redis.Redis) -> None:
    batch = [new("a"), new("b", 2, front=True, ttl=60)]
    first = broker.enqueue("q", batch, "nonce")
    before = everything(conn, clocks=True)
    assert broker.enqueue("q", batch, "nonce") == first
    assert everything(conn, clocks=True) == before


@pytest.mark.parametrize("since", ["started", "finished", "requeued"])
def test_a_late_resend_finds_the_job_further_on_and_leaves_it(broker: Broker, conn: redis.Redis, since: str) -> None:
    first = broker.enqueue("q", [new("a")], "nonce")
    hand = Hand(broker, "q")
    claimed = hand.take()
    if since == "finished":
        hand.tell(claimed)
    elif since == "requeued":
        hand.tell(claimed, "failed", reason="r")
        assert broker.requeue(["a"], "by hand") == ["ok"]
    before = everything(conn)
    at = broker.enqueue("q", [new("a")], "nonce")
    assert at == first or since == "requeued"
    assert everything(conn) == before


def test_a_queue_key_of_another_type_refuses_and_leaves_no_job(broker: Broker, conn: redis.Redis) -> None:
    conn.set("rq:queue:q", "not a queue")
    with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
        put(broker, "q", "a")
    assert not conn.exists("rq:job:a")


def test_a_full_server_refuses_whole(spawn: Callable[..., SpawnedServer]) -> None:
    """ADR 0011: nothing is half accepted at maxmemory."""
    conn = spawn("--maxmemory-policy", "noeviction").client()
    broker = Broker(conn)
    put(broker, "q", "a")  # the script is known; at maxmemory loading one is refused as well
    before = everything(conn, clocks=True)
    conn.config_set("maxmemory", 1)
    for batch in ([new("b")], [new(f"b{i}") for i in range(100)]):
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            broker.enqueue("q", batch, "n")
    conn.config_set("maxmemory", 0)
    assert everything(conn, clocks=True) == before
