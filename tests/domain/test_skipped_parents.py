"""A parent that is skipped, as another job has its unique key: its children of the same call wait for that other job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis

from fusion import AsyncQueue, Dependency, Job, Queue, chain, signature
from fusion.enqueue.build import JobData
from fusion.enqueue.graph import Graph
from fusion.exceptions import UnknownDependency
from fusion.store.write.broker import Broker
from tests.domain.test_graphs import TASK, keys, run_all
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import status_of
from tests.kit.workers import Workers
from tests.store.kin_hands import of_kin, settle

Many = Callable[[list[JobData]], list[Job]]


def _sync(datas: list[JobData]) -> list[Job]:
    return Queue("q").enqueue_many(datas)


def _awaited(datas: list[JobData]) -> list[Job]:
    async def enqueue() -> list[Job]:
        async with AsyncQueue("q") as queue:
            return await queue.enqueue_many(datas)

    return asyncio.run(enqueue())


def node(job_id: str, *parents: object, **options: Any) -> JobData:
    return Queue.prepare_data(TASK, job_id=job_id, depends_on=list(parents) or None, **options)


def parents_of(conn: redis.Redis, job_id: str) -> bytes:
    return conn.hget(f"rq:job:{job_id}", "parents")  # type: ignore[return-value]


@pytest.mark.parametrize("enqueue_many", [_sync, _awaited])
@pytest.mark.parametrize("more", [0, 100], ids=["in-one-call", "in-several"])
@pytest.mark.parametrize("place", ["beside", "far"])
def test_the_child_waits_for_the_job_that_was_met(
    conn: redis.Redis, broker: Broker, enqueue_many: Many, more: int, place: str
) -> None:
    Queue("other").enqueue(TASK, job_id="first", unique_key="k")
    skipped, child = node("skipped", unique_key="k"), node("child", "skipped")
    others = [node(f"o{nth}", *(["o0"] if nth else [])) for nth in range(more)]
    datas = [skipped, child, *others] if place == "beside" else [skipped, *others, child]
    for _ in range(2):  # a second time, as after an answer that was lost
        jobs = {data.new.id: job for data, job in zip(datas, enqueue_many(datas), strict=True)}
        assert jobs["skipped"].id == jobs["skipped"].duplicate_of == "first"
        settle(broker)
        assert status_of(conn, "child") == "deferred" and parents_of(conn, "child") == b'["first"]'
    assert sorted(run_all(conn)) == sorted(data.new.id for data in others)
    assert status_of(conn, "child") == "deferred" and status_of(conn, "skipped") is None
    assert run_all(conn, "other", name="host.2") == ["first"]
    assert run_all(conn, name="host.3") == ["child"]
    assert of_kin(conn) == set() and not conn.exists("rq:graphs")


def test_all_that_are_sent_may_be_skipped(conn: redis.Redis, broker: Broker) -> None:
    first = Queue("q").enqueue_many([node(f"a{nth}", unique_key=f"k{nth}") for nth in range(50)])
    again = [node(f"b{nth}", *([f"b{nth - 1}"] if nth else []), unique_key=f"k{nth}") for nth in range(50)]
    assert [job.id for job in Queue("q").enqueue_many(again)] == [job.id for job in first]
    settle(broker)
    check_conservation(conn, [job.id for job in first])
    assert not [key for key in keys(conn) if "graph" in key or ":b" in key]


def test_the_one_that_was_met_may_be_of_the_same_call(conn: redis.Redis, broker: Broker) -> None:
    datas = [node("first", unique_key="k"), node("skipped", unique_key="k"), node("child", "skipped")]
    Queue("q").enqueue_many(datas)
    assert parents_of(conn, "child") == b'["first"]'
    assert run_all(conn) == ["first", "child"]


@pytest.mark.parametrize("many", [0, 150])
def test_one_that_is_met_and_named_counts_once_and_each_keeps_its_policy(conn: redis.Redis, broker: Broker, many: int) -> None:
    Queue("q").enqueue_many([node("first", unique_key="k"), node("plain")])
    further = [node(f"m{nth}") for nth in range(many)]
    named = ["plain", "first", Dependency("skipped", on_failure="ignore"), *(data.new.id for data in further)]
    Queue("q").enqueue_many([node("skipped", unique_key="k"), *further, node("child", *named)])
    assert parents_of(conn, "child").startswith(b'["plain","?first"')
    settle(broker)
    broker.cancel("first")
    settle(broker)
    assert run_all(conn)[-1] == "child"


@pytest.mark.parametrize("how", ["finished", "canceled", "gone"])
def test_one_that_was_met_and_has_ended(conn: redis.Redis, broker: Broker, how: str) -> None:
    Queue("q").enqueue(TASK, job_id="first", unique_key="k", unique_until="accept", unique_window=600)
    if how == "finished":
        run_all(conn)
    elif how == "canceled":
        broker.cancel("first")
    else:
        broker.delete(["first"])
    datas = [node("skipped", unique_key="k", unique_until="accept", unique_window=600), node("child", "skipped"), node("free")]
    if how == "gone":
        with pytest.raises(UnknownDependency, match="'child' is to wait for 'first'"):
            Queue("q").enqueue_many(datas)
        assert status_of(conn, "free") is None
        return
    Queue("q").enqueue_many(datas)
    settle(broker)
    assert status_of(conn, "child") == ("queued" if how == "finished" else "failed")


def test_a_skipped_job_with_many_parents_is_passed_over(conn: redis.Redis, broker: Broker) -> None:
    Queue("q").enqueue(TASK, job_id="first", unique_key="k")
    parents = [node(f"p{nth}") for nth in range(230)]
    Queue("q").enqueue_many([*parents, node("skipped", *parents, unique_key="k"), node("child", "skipped")])
    order = run_all(conn)
    assert order.index("first") < order.index("child") and "skipped" not in order
    assert of_kin(conn) == set() and not conn.exists("rq:graphs")


def test_calls_of_a_graph_of_which_the_first_is_skipped_may_be_sent_twice(conn: redis.Redis, broker: Broker) -> None:
    Queue("other").enqueue(TASK, job_id="first", unique_key="k")
    graph = Graph.of([node("skipped", unique_key="k").new, node("child", "first").new], {"skipped": "a", "child": "b"})
    for _ in range(2):
        broker.enqueue_part("a", graph.jobs[:1], graph.token, 0)
    for _ in range(2):
        broker.enqueue_part("b", graph.jobs[1:], graph.token, 0)
    for _ in range(2):
        broker.release_graph(graph.token, "b", graph.jobs[1])
        settle(broker)
    assert status_of(conn, "child") == "deferred"
    assert run_all(conn, "other") == ["first"] and run_all(conn, "b", name="host.2") == ["child"]


@pytest.mark.parametrize("queues", ["qq", "ab"], ids=["one-queue", "several"])
def test_a_step_of_a_chain_is_given_what_the_job_that_was_met_returned(conn: redis.Redis, workers: Workers, queues: str) -> None:
    first = Queue("other", conn).enqueue("tests.jobs.basic.add", 1, 2, unique_key="k")
    steps = [
        signature("tests.jobs.basic.add", 50, 50).set(queue=queues[0], unique_key="k"),
        signature("tests.jobs.basic.add", 10).set(queue=queues[1]),
    ]
    met, child = chain(*steps).enqueue(connection=conn)
    assert met.id == first.id
    workers.start("other", *queues, env={"FUSION_TASKS": "tests.jobs.basic"})
    assert child.wait(20) == "finished" and child.result == 13
