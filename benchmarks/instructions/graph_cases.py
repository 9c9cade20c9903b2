"""The scripts that read graphs and count members of batches, at their largest calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import redis

from benchmarks.instructions.case import case
from benchmarks.instructions.stage import Steps, open_batch
from fusion.enqueue.graph import Graph, write
from fusion.jobs.tree import _WITH_QUEUES
from fusion.store.read.graph_inspector import GraphInspector
from fusion.store.scripting.host import run
from fusion.store.write.broker import Broker
from tests.kit.hands import new
from tests.store.kin_hands import child

#: As long as ids are that nobody chose.
_ID = "ID{:020}"


def _graph(conn: redis.Redis, parents: Callable[[int], Iterable[int]], at: int = 0, *, ended: bool = False) -> Steps:
    run(write(Graph.of([child(_ID.format(n), *map(_ID.format, parents(n))) for n in range(300)]), "q", Broker(conn)))
    if ended:
        times = dict.fromkeys(("enqueued_at", "started_at", "ended_at"), "2026-01-01T00:00:00.000000Z")
        for n in range(300):
            conn.hset(f"rq:job:{_ID.format(n)}", mapping={**times, "status": "finished"})
            conn.delete(f"rq:job:{_ID.format(n)}:children")
    yield
    GraphInspector(conn).walk_graph([("b", _ID.format(at))], _WITH_QUEUES)


def _chain(n: int) -> Iterable[int]:
    return [n - 1] if n else []


def _tree(n: int) -> Iterable[int]:
    return [(n - 1) // 2] if n else []


def _layers(n: int) -> Iterable[int]:
    return [n // 30 * 30 - 30 + (3 * n + 7 * i) % 30 for i in range(3)] if n >= 30 else [0] if n else []


@case("walk_graph")
def walk_a_chain_of_300(conn: redis.Redis) -> Steps:
    yield from _graph(conn, _chain, 150)


@case("walk_graph")
def walk_a_chain_of_300_from_its_first(conn: redis.Redis) -> Steps:
    yield from _graph(conn, _chain)


@case("walk_graph")
def walk_a_chain_of_300_from_its_last(conn: redis.Redis) -> Steps:
    yield from _graph(conn, _chain, 299)


@case("walk_graph")
def walk_a_chain_of_300_that_have_ended(conn: redis.Redis) -> Steps:
    yield from _graph(conn, _chain, ended=True)


@case("walk_graph")
def walk_a_tree_of_300_from_its_root(conn: redis.Redis) -> Steps:
    yield from _graph(conn, _tree)


@case("walk_graph")
def walk_a_tree_of_300_that_have_ended(conn: redis.Redis) -> Steps:
    yield from _graph(conn, _tree, ended=True)


@case("walk_graph")
def walk_299_children_that_have_ended(conn: redis.Redis) -> Steps:
    yield from _graph(conn, lambda n: [0] if n else [], ended=True)


@case("walk_graph")
def walk_299_parents_that_have_ended(conn: redis.Redis) -> Steps:
    yield from _graph(conn, lambda n: range(299) if n == 299 else [], 299, ended=True)


@case("walk_graph")
def walk_ten_layers_of_30_that_have_ended(conn: redis.Redis) -> Steps:
    yield from _graph(conn, _layers, ended=True)


@case("walk_graph")
def walk_300_with_up_to_9_parents_each(conn: redis.Redis) -> Steps:
    yield from _graph(conn, lambda n: range(max(0, n - 9), n), 150)


@case("walk_graph")
def walk_300_with_up_to_90_parents_each(conn: redis.Redis) -> Steps:
    yield from _graph(conn, lambda n: range(max(0, n - 90), n), 150)


@case("walk_graph")
def walk_jobs_with_1000_children_each(conn: redis.Redis) -> Steps:
    for n in range(10):
        conn.hset(f"rq:job:p{n}", mapping={"status": "deferred", "func": "f", "data": "[[],{}]"})
        conn.zadd(f"rq:job:p{n}:children", {f"c{n}-{m}": m for m in range(999)})
        conn.sadd(f"rq:job:p{n}:dependents", *(f"d{n}-{m}" for m in range(1000)))
    yield
    GraphInspector(conn).walk_graph([("d", f"p{n}") for n in range(10)], _WITH_QUEUES)


@case("walk_graph")
def walk_jobs_with_1100_parents_each(conn: redis.Redis) -> Steps:
    named = [[f"p{part}-{n}" for n in range(100)] for part in range(11)]
    for n in range(10):
        fields = {"status": "deferred", "func": "f", "data": "[[],{}]", "parents": json.dumps(named[0])}
        conn.hset(f"rq:job:c{n}", mapping=fields)
        conn.hset(f"rq:job:c{n}:parents", mapping={str(nth): json.dumps(named[nth]) for nth in range(1, 11)})
    yield
    GraphInspector(conn).walk_graph([("u", f"c{n}") for n in range(10)], _WITH_QUEUES)


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
