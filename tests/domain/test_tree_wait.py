"""`wait(tree=True)`: until a job has ended, and all that depends on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
import redis

from fusion import AsyncQueue, Dependency, Job, Queue
from fusion.exceptions import NoSuchJobError
from fusion.status import JobStatus
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand
from tests.store.kin_hands import settle

TASK = "tests.jobs.basic.noop"
Wait = Callable[[str, float], JobStatus]


def _sync(job_id: str, timeout: float) -> JobStatus:
    return Job(job_id, {}).wait(timeout, tree=True)


def _async(job_id: str, timeout: float) -> JobStatus:
    async def inside() -> JobStatus:
        async with AsyncQueue("q") as queue:
            return await queue.wait(job_id, timeout, tree=True)

    return asyncio.run(inside())


both = pytest.mark.parametrize("wait", [_sync, _async])


def work_off(broker: Broker, outcome: dict[str, str] | None = None, most: int = 10_000) -> int:
    hand, done = Hand(broker, "q"), 0
    while done < most and (jobs := hand.claim(1)):
        (job,) = jobs
        how = (outcome or {}).get(job.id, "finished")
        assert hand.tell(job, how, **({"reason": "r"} if how == "failed" else {})) == "ok"
        settle(broker)
        done += 1
    return done


@both
def test_a_wait_for_a_tree_ends_with_its_last_dependent(conn: redis.Redis, broker: Broker, wait: Wait) -> None:
    queue = Queue("q")
    queue.enqueue(TASK, job_id="a")
    queue.enqueue(TASK, job_id="b", depends_on="a")
    queue.enqueue(TASK, job_id="c", depends_on=["a", "b"])
    queue.enqueue(TASK, job_id="d", depends_on="c")
    found: list[JobStatus] = []
    waiting = threading.Thread(target=lambda: found.append(wait("a", 30)))
    waiting.start()
    work_off(broker, most=3)
    with pytest.raises(TimeoutError, match=r"of job a and those that depend on it 1 have not ended after 0\.4 s"):
        wait("a", 0.4)
    assert waiting.is_alive()
    hand = Hand(broker, "q", name="host.2")
    hand.tell(hand.take(), "failed", reason="r")
    waiting.join(30)
    assert found == ["finished"]


@both
def test_dependents_that_fail_or_ignore_a_failure_count_alike(conn: redis.Redis, broker: Broker, wait: Wait) -> None:
    queue = Queue("q")
    queue.enqueue(TASK, job_id="a")
    queue.enqueue(TASK, job_id="b", depends_on="a")
    queue.enqueue(TASK, job_id="c", depends_on=Dependency("b", allow_failure=True))
    queue.enqueue(TASK, job_id="d", depends_on=Dependency("a", on_failure="wait"))
    work_off(broker, {"a": "failed"})
    with pytest.raises(TimeoutError, match="1 have not ended"):  # d waits for a to be requeued
        wait("a", 0.4)
    Job.fetch("d").cancel()
    settle(broker)
    assert wait("a", 5) == "failed"


@both
def test_many_are_waited_for_and_those_that_are_gone_have_ended(conn: redis.Redis, broker: Broker, wait: Wait) -> None:
    queue = Queue("q")
    parent = queue.enqueue(TASK)
    children = queue.enqueue_many([Queue.prepare_data(TASK, depends_on=parent) for _ in range(1250)])
    with pytest.raises(TimeoutError, match="1251 have not ended"):
        wait(parent.id, 0)
    with pytest.raises(NoSuchJobError):
        wait("nobody", 1)
    hand = Hand(broker, "q")
    hand.tell(hand.take())
    settle(broker)
    broker.delete([job.id for job in children[:600]])
    broker.delete([job.id for job in children[600:]])
    assert wait(parent.id, 10) == "finished"
