"""Jobs that share a call and are something else besides: in chains, in batches, of a key, unique, a cron entry's."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from fusion import Batch, Job, Queue, chain, signature
from fusion.cron.scheduler import Scheduler
from tests.faults.rig.conservation import check_conservation, check_ended, memberships
from tests.jobs import gathering
from tests.kit.witnesses import field
from tests.kit.workers import Workers

ENV = {"FUSION_TASKS": "tests.jobs.gathering"}


@pytest.fixture
def queue(conn: redis.Redis) -> Queue:
    return Queue("g", conn)


def size(job: Job) -> int:
    """Of the call that gave its result."""
    answer = job.result
    return answer if isinstance(answer, int) else answer[1]


def test_two_tasks_by_turns_keep_their_order(workers: Workers, queue: Queue, conn: redis.Redis) -> None:
    tasks: list[Any] = [gathering.send, gathering.send_async] * 3
    jobs = [queue.enqueue_call(task, (n,)) for n, task in enumerate(tasks)]
    workers.burst("g", env=ENV)
    assert [size(job) for job in jobs] == [1] * 6
    began = [field(conn, job.id, "started_at") for job in jobs]
    assert began == sorted(began)


def test_as_many_jobs_of_a_key_share_a_call_as_it_has_slots(workers: Workers, queue: Queue, conn: redis.Redis) -> None:
    keyed = [queue.enqueue_call(gathering.send, (n,), concurrency_key="k", max_concurrent=2) for n in range(5)]
    free = queue.enqueue_call(gathering.send, (9,))
    workers.burst("g", env=ENV)
    assert [size(job) for job in (*keyed, free)] == [3, 3, 2, 2, 1, 3]
    check_conservation(conn, [job.id for job in (*keyed, free)])


def test_chains_batches_and_unique_keys_go_on_as_ever(workers: Workers, queue: Queue, conn: redis.Redis) -> None:
    """Steps of chains take what the step before them returned, and share calls."""
    steps = [chain(signature(gathering.send, n), signature(gathering.send)).enqueue("g", conn) for n in (1, 2)]
    follows = signature(gathering.send, 7).set(queue="g", job_id="after")
    with Batch(queue="g", connection=conn, on_success=follows) as batch:
        members = [queue.enqueue_call(gathering.send, (n,), batch=batch) for n in (3, 4)]
    unique = queue.enqueue_call(gathering.send, (5,), unique_key="u")
    assert queue.enqueue_call(gathering.send, (6,), unique_key="u").id == unique.id
    Scheduler(conn).every(3600, gathering.send, args=(8,), id="entry", queue="g")
    tick = Scheduler(conn).run("entry")
    workers.burst("g", env=ENV)
    assert tick.result[0] == 16
    first = [steps[0][0], steps[1][0], *members, unique]
    assert [job.result[:2] for job in first] == [[2 * n, 5] for n in (1, 2, 3, 4, 5)]
    assert [two.result[:2] for _, two in steps] == [[one.result * 2, 3] for one, _ in steps]
    assert Job.fetch("after", connection=conn).result[:2] == [14, 3]
    check_ended(conn, memberships(conn))
    assert queue.enqueue_call(gathering.send, (6,), unique_key="u").id != unique.id
