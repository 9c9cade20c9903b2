from __future__ import annotations

import pytest
import redis

from fusion import FailedQueue, Job, Queue
from fusion.exceptions import InvalidJobOperation, NoSuchJobError
from fusion.store.access import broker_of
from tests.domain.conftest import Bench
from tests.faults.rig.conservation import check_conservation
from tests.jobs import basic
from tests.kit.hands import Hand


def failed(conn: redis.Redis, queue: str, *ids: str, **options: object) -> list[str]:
    """Jobs that failed in this order."""
    hand = Hand(broker_of(conn), queue, name=f"hand.{queue}")
    for job_id in ids:
        Queue(queue).enqueue(basic.noop, job_id=job_id, **options)
        hand.tell(hand.take(), "failed", reason="boom", fields={"exc_info": "boom"})
    return list(ids)


def test_a_failed_queue_lists_its_jobs(conn: redis.Redis) -> None:
    assert (len(FailedQueue()), FailedQueue().get_job_ids(), FailedQueue().get_jobs()) == (0, [], [])
    failed(conn, "sms", "c", "b", "a")
    assert FailedQueue().count == 3
    assert FailedQueue().get_job_ids() == ["c", "b", "a"]
    assert FailedQueue().get_job_ids(1, 1) == ["b"]
    assert [job.exc_info for job in FailedQueue().get_jobs()] == ["boom"] * 3


@pytest.mark.parametrize("queue", ["sms", "scheduler"])
def test_requeue_goes_back_to_where_it_came_from(conn: redis.Redis, queue: str) -> None:
    """Whatever type that queue is."""
    failed(conn, queue, "one", priority=2)
    waiting = Queue(queue).enqueue(basic.noop, priority=2)
    FailedQueue().requeue("one")
    job = Job.fetch("one")
    assert (job.get_status(), job.origin, job.priority) == ("queued", queue, 2)
    assert len(FailedQueue()) == 0
    check_conservation(conn, ["one", waiting.id])
    hand = Hand(broker_of(conn), queue, name="other")
    assert {hand.take().id, hand.take().id} == {"one", waiting.id}


def test_requeue_of_what_did_not_fail(conn: redis.Redis) -> None:
    with pytest.raises(NoSuchJobError):
        FailedQueue().requeue("nobody")
    job = Queue("sms").enqueue(basic.noop)
    with pytest.raises(InvalidJobOperation, match="is queued"):
        FailedQueue().requeue(job.id)
    FailedQueue().requeue_set(failed(conn, "email", "x")[0])
    assert Job.fetch("x").get_status() == "queued"


def test_requeue_all_in_the_order_of_failing(conn: redis.Redis) -> None:
    """More than one call of the server takes, and in this order although ids sort otherwise."""
    ids = failed(conn, "sms", *(f"job-{n:03}" for n in range(249, -1, -1)))
    steps: list[int] = []
    assert FailedQueue().requeue_all(progress=steps.append) == (250, {})
    assert steps == [100, 100, 50]
    assert Queue("sms").get_job_ids(0, 300) == ids
    check_conservation(conn, ids)
    assert FailedQueue().requeue_all() == (0, {})


def test_requeue_all_of_one_queue(conn: redis.Redis) -> None:
    sms, email = failed(conn, "sms", "s1", "s2"), failed(conn, "email", "e1")
    assert FailedQueue().requeue_all("sms") == (2, {})
    assert FailedQueue().get_job_ids() == email
    assert Queue("sms").get_job_ids() == sms
    check_conservation(conn, [*sms, *email])


def test_keep_place_goes_before_those_that_came_later(conn: redis.Redis) -> None:
    failed(conn, "sms", "old")
    later = Queue("sms").enqueue(basic.noop)
    FailedQueue().requeue("old", keep_place=True)
    assert Queue("sms").get_job_ids() == ["old", later.id]


def test_jobs_that_cannot_be_requeued_are_reported_and_stay(conn: redis.Redis) -> None:
    conn.rpush("rq:queue:scheduler", "nobody")
    hand = Hand(broker_of(conn), "scheduler", name="hand")
    assert hand.claim() == []
    good = failed(conn, "sms", "good")
    conn.zadd("rq:queue:failed", {"vanished": 9e9})
    assert FailedQueue().requeue_all() == (1, {"nobody": "corrupt"})
    assert FailedQueue().get_job_ids() == ["nobody"]
    with pytest.raises(InvalidJobOperation, match="no data to run; delete it"):
        FailedQueue().requeue("nobody")
    Job.fetch("nobody").delete()
    assert len(FailedQueue()) == 0
    check_conservation(conn, good)


def test_a_job_that_failed_can_be_deleted(bench: Bench) -> None:
    bench.job("failed").delete()
    assert len(FailedQueue()) == 0
