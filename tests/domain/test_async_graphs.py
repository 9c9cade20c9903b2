"""Jobs that wait for each other or for many, enqueued from a coroutine: in calls of bounded size, as `Queue` does it."""

from __future__ import annotations

import asyncio

import pytest
import redis

from fusion import AsyncQueue, Job, Queue
from fusion.enqueue.build import JobData
from fusion.exceptions import DependencyCycle, UnknownDependency
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand
from tests.store.kin_hands import settle


def test_graphs_of_several_calls_and_jobs_with_many_parents_are_as_queues_have_them(conn: redis.Redis) -> None:
    task = "tests.jobs.basic.noop"

    def node(job_id: str, *parents: str) -> JobData:
        return Queue.prepare_data(task, job_id=job_id, depends_on=list(parents) or None)

    middle = [f"m{nth}" for nth in range(230)]
    datas = [node("last", *middle), node("first"), *(node(one, "first") for one in middle)]

    async def enqueue() -> list[Job]:
        async with AsyncQueue("q") as queue:
            jobs = await queue.enqueue_many(datas)
            jobs.append(await queue.enqueue(task, job_id="more", depends_on=middle))
            with pytest.raises(UnknownDependency):
                await queue.enqueue_many([*(node(f"x{nth}") for nth in range(150)), node("bad", "x1", "nobody")])
            with pytest.raises(DependencyCycle):
                await queue.enqueue_many([node("y", "z"), node("z", "y")])
            return jobs

    jobs = asyncio.run(enqueue())
    assert [job.id for job in jobs] == [*(data.new.id for data in datas), "more"]
    broker = Broker(conn)
    settle(broker)
    ids = [job.id for job in jobs]
    assert check_conservation(conn, ids) == {one: "queued" if one == "first" else "deferred" for one in ids}
    hand = Hand(broker, "q")
    order = []
    while claimed := hand.claim(100):
        for job in claimed:
            order.append(job.id)
            hand.tell(job)
        settle(broker)
    assert (order[0], set(order[-2:]), sorted(order)) == ("first", {"last", "more"}, sorted(ids))
