"""Jobs of one call that wait for each other, and jobs that wait for many: in calls of bounded size, all or none of them."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import redis

from fusion import Dependency, Queue, chain, signature
from fusion.enqueue.build import JobData
from fusion.enqueue.graph import Graph, write
from fusion.exceptions import DependencyCycle, DuplicateJob, GraphDropped, UnknownDependency
from fusion.store.scripting.host import run
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, promote_all, status_of
from tests.store.kin_hands import a_fleet, of_kin, settle

TASK = "tests.jobs.basic.noop"


def node(job_id: str, *parents: object) -> JobData:
    return Queue.prepare_data(TASK, job_id=job_id, depends_on=list(parents) or None)


def run_all(conn: redis.Redis, queue: str = "q", claims: int = 100, name: str = "host.1") -> list[str]:
    """The order in which a worker runs what there is."""
    broker, order = Broker(conn), list[str]()
    hand = Hand(broker, queue, name=name)
    settle(broker)
    while jobs := hand.claim(claims):
        for job in jobs:
            order.append(job.id)
            assert hand.tell(job) == "ok"
        settle(broker)
    return order


def keys(conn: redis.Redis) -> set[str]:
    return {raw.decode() for raw in conn.scan_iter("rq:*")}


def test_handles_are_parents_in_whatever_order_they_are_given(conn: redis.Redis) -> None:
    a, b = node("a"), node("b")
    c = node("c", a, b)
    jobs = Queue("q").enqueue_many([c, b, a])
    assert {job.id: job.get_status(refresh=False) for job in jobs} == {"a": "queued", "b": "queued", "c": "deferred"}
    assert run_all(conn) == ["b", "a", "c"]
    assert of_kin(conn) == set()


def test_a_cycle_is_refused_and_nothing_is_written(conn: redis.Redis) -> None:
    with pytest.raises(DependencyCycle, match="3 jobs wait for each other, or for such: a, b, c"):
        Queue("q").enqueue_many([node("a", "b"), node("b", "a"), node("c", "b"), node("d")])
    assert keys(conn) == set()


def test_a_graph_of_several_calls_begins_when_its_last_job_has_come(conn: redis.Redis) -> None:
    datas = [node("first")] + [node(f"mid-{i}", "first") for i in range(250)]
    datas.append(node("last", *(data.new.id for data in datas[1:])))
    jobs = Queue("q").enqueue_many(datas)
    assert [job.id for job in jobs] == [data.new.id for data in datas]
    order = run_all(conn)
    assert (order[0], order[-1], sorted(order)) == ("first", "last", sorted(data.new.id for data in datas))
    assert of_kin(conn) == set() and not conn.exists("rq:graphs")
    assert not [key for key in keys(conn) if key.startswith("rq:graph:") or (key.endswith(":parents") and "last" not in key)]


def test_a_job_with_many_parents(conn: redis.Redis) -> None:
    queue = Queue("q")
    parents = queue.enqueue_many([node(f"p-{i}") for i in range(330)])
    child = queue.enqueue(TASK, job_id="child", depends_on=parents)
    assert child.get_status() == "deferred"
    assert run_all(conn)[-1] == "child"
    assert of_kin(conn) == set()
    child.delete()
    assert not conn.exists("rq:job:child:parents") or settle(Broker(conn)) or not conn.exists("rq:job:child:parents")


def test_a_graph_whose_producer_died_leaves_nothing(conn: redis.Redis, broker: Broker) -> None:
    graph = Graph.of([data.new for data in [node("p")] + [node(f"c-{i}", "p") for i in range(150)]])
    parts = list(graph.parts)
    broker.enqueue_part("q", parts[0], graph.token, 0)
    assert status_of(conn, "p") == "deferred"
    broker.promote()
    assert status_of(conn, "p") == "deferred"
    conn.zadd("rq:graphs", {graph.token: 1})
    broker.promote()
    settle(broker)
    check_conservation(conn, [])
    assert not [key for key in keys(conn) if ":job:" in key or "graph" in key or "deferred" in key]
    with pytest.raises(GraphDropped):
        broker.enqueue_part("q", parts[1], graph.token, 1)
    with pytest.raises(GraphDropped):
        broker.release_graph(graph.token, "q", graph.jobs[0])


@pytest.mark.parametrize("flaw", ["unknown", "duplicate", "unknown among many"])
def test_a_part_that_is_refused_takes_the_others_along(conn: redis.Redis, broker: Broker, flaw: str) -> None:
    queue = Queue("q")
    queue.enqueue(TASK, job_id="taken")
    datas = [node("p")] + [node(f"c-{i}", "p") for i in range(250)]
    if flaw == "unknown":
        datas.append(node("bad", "nobody"))
    elif flaw == "duplicate":
        datas.append(node("taken", "p"))
    else:
        datas.append(node("bad", *(data.new.id for data in datas[:150]), "nobody"))
    with pytest.raises(DuplicateJob if flaw == "duplicate" else UnknownDependency):
        queue.enqueue_many(datas)
    settle(broker)
    assert check_conservation(conn, ["taken"]) == {"taken": "queued"}
    assert [key for key in keys(conn) if ":job:" in key] == ["rq:job:taken"]
    assert of_kin(conn) == set()


def test_each_call_of_a_graph_may_be_sent_twice(conn: redis.Redis, broker: Broker) -> None:
    datas = [node("p")] + [node(f"c-{i}", "p") for i in range(120)]
    datas.append(node("last", *(data.new.id for data in datas)))
    graph = Graph.of([data.new for data in datas])
    for nth, part in enumerate(graph.parts):
        assert broker.enqueue_part("q", part, graph.token, nth) and broker.enqueue_part("q", part, graph.token, nth)
        for job in part:
            for further, parents in enumerate(graph.more.get(job.id, ()), 1):
                broker.add_parents(job.id, graph.token, further, parents)
                broker.add_parents(job.id, graph.token, further, parents)
    for _ in range(2):
        broker.release_graph(graph.token, "q", graph.jobs[0])
    settle(broker)
    broker.release_graph(graph.token, "q", graph.jobs[0])
    assert len(run_all(conn)) == len(datas)
    assert of_kin(conn) == set()


def test_a_graph_may_be_sent_again_when_it_has_begun(conn: redis.Redis, broker: Broker) -> None:
    """As after an answer that was not heard: it is the same graph, and runs once."""
    datas = [node("p")] + [node(f"c-{i}", "p") for i in range(120)]
    datas.append(node("last", *(data.new.id for data in datas)))
    graph = Graph.of([data.new for data in datas])
    run(write(graph, "q", broker))
    run(write(graph, "q", broker))
    settle(broker)
    run(write(graph, "q", broker))
    hand = Hand(broker, "q")
    assert hand.tell(hand.take()) == "ok"
    settle(broker)
    run(write(graph, "q", broker))
    assert len(run_all(conn, name="host.2")) == len(datas) - 1
    run(write(graph, "q", broker))
    assert run_all(conn, name="host.3") == [] and of_kin(conn) == set()
    assert set(check_conservation(conn, [data.new.id for data in datas]).values()) == {"finished"}


def test_a_chain_over_several_queues_is_refused_whole(conn: redis.Redis, broker: Broker) -> None:
    Queue("c").enqueue(TASK, job_id="taken")
    call = signature(TASK)
    with pytest.raises(DuplicateJob):
        chain(call.set(queue="a"), call.set(queue="b"), call.set(queue="c", job_id="taken")).enqueue(connection=conn)
    settle(broker)
    assert [key for key in keys(conn) if ":job:" in key] == ["rq:job:taken"]
    steps = [call.set(queue="a"), call.set(queue="b"), call.set(queue="c", unique_key="k")]
    first, second = chain(*steps).enqueue(connection=conn), chain(*steps).enqueue(connection=conn)
    settle(broker)
    assert [job.origin for job in first] == ["a", "b", "c"]
    assert [job.get_status(refresh=False) for job in first] == ["queued", "deferred", "deferred"]
    assert [job.get_status() for job in first] == ["queued", "deferred", "deferred"]
    assert second[2].duplicate_of == first[2].id == second[2].id
    assert run_all(conn, "a", name="host.a") == [first[0].id, second[0].id]
    assert set(run_all(conn, "b", name="host.b")) == {first[1].id, second[1].id}  # their parents ended at one instant
    assert run_all(conn, "c", name="host.c") == ["taken", first[2].id]
    assert of_kin(conn) == set()


def test_one_of_several_producers_of_the_same_ids_succeeds_and_the_others_get_duplicate_errors(
    conn: redis.Redis, broker: Broker
) -> None:
    def rival(number: int, who: int) -> str:
        steps = [signature(TASK).set(queue=queue, job_id=f"{number}-{n}") for n, queue in enumerate("abcad")]
        try:
            chain(*(steps if who else reversed(steps))).enqueue(connection=conn)
        except DuplicateJob as error:
            return error.status
        return "ok"

    with a_fleet(broker), ThreadPoolExecutor(3) as pool:
        told = [sorted(pool.map(partial(rival, number), range(3))) for number in range(4)]
    assert all(found.count("ok") == 1 and set(found) <= {"ok", "queued", "deferred"} for found in told), told
    settle(broker)
    states = check_conservation(conn, [f"{number}-{n}" for number in range(4) for n in range(5)])
    assert not conn.exists("rq:graphs") and Counter(states.values()) == {"queued": 4, "deferred": 16}


def test_a_parent_that_fails_while_a_graph_is_still_coming(conn: redis.Redis, broker: Broker) -> None:
    queue = Queue("other")
    queue.enqueue(TASK, job_id="outside")
    graph = Graph.of([node("c", "outside").new, node("d", "c").new])
    broker.enqueue_part("q", graph.jobs, graph.token, 0)
    broker.cancel("outside")
    settle(broker)
    assert status_of(conn, "c") == "deferred"
    broker.release_graph(graph.token, "q", graph.jobs[0])
    settle(broker)
    assert (status_of(conn, "c"), status_of(conn, "d")) == ("failed", "failed")
    assert of_kin(conn) == set()


def test_a_dependency_decides_what_happens_to_its_job(conn: redis.Redis, broker: Broker) -> None:
    queue = Queue("q")
    a, b = queue.enqueue(TASK, job_id="a"), queue.enqueue(TASK, job_id="b")
    queue.enqueue(TASK, job_id="before")
    queue.enqueue(TASK, job_id="c", depends_on=[a, Dependency(jobs=[b], allow_failure=True, enqueue_at_front=True)])
    hand = Hand(broker, "q")
    hand.tell(hand.take())
    hand.tell(hand.take(), "failed", reason="r")
    settle(broker)
    promote_all(broker, conn)
    assert drain(hand) == ["c", "before"]
