"""The scripts that read graphs and count members of batches, at their largest calls."""

from __future__ import annotations

import json
from collections.abc import Callable

import redis

from benchmarks.instructions.case import case
from benchmarks.instructions.stage import Steps, open_batch
from fusion.enqueue.graph import Graph
from fusion.jobs.tree import _FIELDS
from fusion.store.read.graph_inspector import GraphInspector
from fusion.store.write.broker import Broker
from tests.kit.hands import new
from tests.store.kin_hands import child


def _graph(conn: redis.Redis, parents: Callable[[int], list[str]], at: int = 150) -> Steps:
    graph = Graph.of([child(f"c{n}", *parents(n)) for n in range(300)])
    broker = Broker(conn)
    for nth, part in enumerate(graph.parts):
        broker.enqueue_part("q", part, graph.token, nth)
    broker.release_graph(graph.token, "q", graph.jobs[0])
    while broker.release()[1] == 0:
        pass
    yield
    GraphInspector(conn).walk_graph([("b", f"c{at}")], _FIELDS)


@case("walk_graph")
def walk_a_chain_of_300(conn: redis.Redis) -> Steps:
    yield from _graph(conn, lambda n: [f"c{n - 1}"] if n else [])


@case("walk_graph")
def walk_a_chain_of_300_from_its_first(conn: redis.Redis) -> Steps:
    yield from _graph(conn, lambda n: [f"c{n - 1}"] if n else [], 0)


@case("walk_graph")
def walk_a_tree_of_300_from_its_root(conn: redis.Redis) -> Steps:
    yield from _graph(conn, lambda n: [f"c{(n - 1) // 2}"] if n else [], 0)


@case("walk_graph")
def walk_300_with_up_to_9_parents_each(conn: redis.Redis) -> Steps:
    yield from _graph(conn, lambda n: [f"c{one}" for one in range(max(0, n - 9), n)])


@case("walk_graph")
def walk_jobs_with_1000_children_each(conn: redis.Redis) -> Steps:
    for n in range(10):
        conn.hset(f"rq:job:p{n}", mapping={"status": "deferred", "func": "f", "data": "[[],{}]"})
        conn.zadd(f"rq:job:p{n}:children", {f"c{n}-{m}": m for m in range(1000)})
        conn.sadd(f"rq:job:p{n}:dependents", *(f"d{n}-{m}" for m in range(1000)))
    yield
    GraphInspector(conn).walk_graph([("d", f"p{n}") for n in range(10)], _FIELDS)


@case("walk_graph")
def walk_jobs_with_1100_parents_each(conn: redis.Redis) -> Steps:
    named = [[f"p{part}-{n}" for n in range(100)] for part in range(11)]
    for n in range(10):
        fields = {"status": "deferred", "func": "f", "data": "[[],{}]", "parents": json.dumps(named[0])}
        conn.hset(f"rq:job:c{n}", mapping=fields)
        conn.hset(f"rq:job:c{n}:parents", mapping={str(nth): json.dumps(named[nth]) for nth in range(1, 11)})
    yield
    GraphInspector(conn).walk_graph([("u", f"c{n}") for n in range(10)], _FIELDS)


@case("count_members")
def count_members_of_a_batch(conn: redis.Redis) -> Steps:
    broker = Broker(conn)
    open_batch(broker)
    for first in range(0, 600, 100):
        broker.enqueue("q", [new(f"j{n}", ties="b", batch="b", func="f") for n in range(first, first + 100)], f"n{first}")
    yield
    GraphInspector(conn).count_members("b")


@case("count_members")
def count_members_that_are_gone(conn: redis.Redis) -> Steps:
    conn.zadd("rq:batch:b:members", {f"j{n}": n for n in range(600)})
    yield
    GraphInspector(conn).count_members("b")
