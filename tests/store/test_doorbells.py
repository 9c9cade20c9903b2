"""Two bells per queue: one for any job, one for workers that only take HIGH ones."""

from __future__ import annotations

import pytest
import redis

from fusion import Queue
from fusion.store.write.broker import Broker

BELLS = ("rq:wake:sms", "rq:wake:sms:high")


def rung(conn: redis.Redis) -> list[int]:
    return [conn.llen(bell) for bell in BELLS]


@pytest.mark.parametrize(("priority", "bells"), [(0, [1, 0]), (1, [1, 0]), (2, [1, 1]), (255, [1, 1])])
def test_only_high_jobs_ring_the_second(conn: redis.Redis, priority: int, bells: list[int]) -> None:
    for _ in range(3):
        Queue("sms", conn).enqueue("tasks.sms.sendSMS", priority=priority)
    assert rung(conn) == bells


def test_ring_rings_for_claimable_jobs_again(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("tasks.sms.sendSMS", priority=2)
    conn.delete(*BELLS)
    Broker(conn).ring("sms")
    assert rung(conn) == [1, 1]
    conn.delete(*BELLS, "rq:queue:sms")
    Queue("sms", conn).enqueue("tasks.sms.sendSMS", priority=1)
    conn.delete(*BELLS)
    Broker(conn).ring("sms")
    assert rung(conn) == [1, 0]


def test_nobody_suspended_is_woken(conn: redis.Redis) -> None:
    broker = Broker(conn)
    broker.suspend()
    Queue("sms", conn).enqueue("tasks.sms.sendSMS", priority=2)
    assert rung(conn) == [0, 0]
    broker.resume()
    assert rung(conn) == [1, 1]


def test_a_low_job_before_a_high_one_hides_nothing(conn: redis.Redis) -> None:
    queue = Queue("sms", conn)
    queue.enqueue("tasks.sms.sendSMS", priority=0)
    queue.enqueue("tasks.sms.sendSMS", priority=2)
    assert rung(conn) == [1, 1]


def test_a_queue_of_another_type_breaks_no_bell(conn: redis.Redis) -> None:
    conn.set("rq:queue:sms", "not a queue")
    Broker(conn).ring("sms")
    assert rung(conn) == [1, 0]
