"""Rates of one producer, round trips and bytes."""

from __future__ import annotations

import base64
import random
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import redis

from benchmarks.contestant import Contestant
from benchmarks.figures.figure import Effort, Figure, Found
from benchmarks.peers.base import Conditions
from benchmarks.server import Server
from fusion import Queue
from fusion.store.client.connections import connect

_TASK = "benchmarks.tasks.noop"


def enqueue(effort: Effort) -> Found:
    """One by one beside Huey on TCP and on a unix socket, and in bulk beside RQ, slice by slice in turns."""
    entered = {
        "Fusion": ("fusion", "one", Conditions()),
        "Huey": ("huey", "one", Conditions()),
        "Fusion, unix socket": ("fusion", "one", Conditions(unix=True)),
        "Huey, unix socket": ("huey", "one", Conditions(unix=True)),
        "Fusion, enqueue_many": ("fusion", "many", Conditions()),
        "RQ": ("rq", "one", Conditions()),
        "RQ, enqueue_many": ("rq", "many", Conditions()),
    }
    jobs, seconds, trips = (dict.fromkeys(entered, 0.0) for _ in range(3))
    with ExitStack() as stack:
        contestants = {}
        for name, (key, _, asked) in entered.items():
            try:
                contestants[name] = stack.enter_context(Contestant(key, asked, working=False))
            except ImportError as error:
                print(f"{name}: left out, {error}; pip install '.[bench]'", file=sys.stderr)
                continue
            contestants[name].order("fill", _TASK, 3, 0)
        for _ in range(effort.slices):
            for name in random.sample(list(contestants), len(contestants)):
                one, how = contestants[name], entered[name][1]
                before, _ = one.server.counters()
                done, took = one.order(how, _TASK, effort.seconds, 0)
                jobs[name], seconds[name] = jobs[name] + done, seconds[name] + took
                trips[name] += one.server.counters()[0] - before - 1
    rate = {name: jobs[name] / seconds[name] for name in contestants}
    found = [Figure("rates", f"enqueue: {name}", value, "jobs/s") for name, value in rate.items()]
    found.append(Figure("enqueue", "round trips an enqueue", trips["Fusion"] / jobs["Fusion"], "", at_most=1.0))
    found.append(Figure("enqueue", "enqueue_many", rate["Fusion, enqueue_many"], "jobs/s", at_least=40_000))
    for ours, theirs, least in (
        ("Fusion", "Huey", 0.9),
        ("Fusion, unix socket", "Huey, unix socket", 0.9),
        ("Fusion", "RQ", None),
    ):
        if ours in rate and theirs in rate:
            found.append(Figure("enqueue", f"{ours} / {theirs}", rate[ours] / rate[theirs], at_least=least))
    return Found(found)


def stored(effort: Effort) -> Found:
    """Bytes of a job that waits beside RQ's, with arguments that do not compress."""
    found = []
    jobs = max(50, min(2_000, effort.backlog // 100))
    with Server() as server:
        conn = connect(server.url)
        for size in (0, 20, 100, 1_000):
            ours = _bytes(conn, _ours(conn), size, jobs, "rq:queue:default")
            try:
                theirs = _bytes(conn, _rqs(conn), size, jobs, "rq:queue:rqbench")
            except ImportError as error:
                print(f"RQ: left out, {error}", file=sys.stderr)
                continue
            with_size = f"{size:,} bytes of arguments"
            found.append(Figure("bytes", f"Fusion / RQ, {with_size}", ours / theirs, at_most=0.8))
            found += [
                Figure("bytes", f"{name}, {with_size}", value, "bytes") for name, value in (("Fusion", ours), ("RQ", theirs))
            ]
        conn.close()
    return Found(found)


def _ours(conn: redis.Redis) -> Callable[[Iterable[str]], object]:
    queue = Queue("default", conn)
    return lambda texts: [queue.enqueue(_TASK, *([text] if text else [])) for text in texts]


def _rqs(conn: redis.Redis) -> Callable[[Iterable[str]], object]:
    import rq

    queue = rq.Queue("rqbench", connection=conn)
    return lambda texts: [queue.enqueue(_TASK, *([text] if text else [])) for text in texts]


def _bytes(conn: redis.Redis, enqueue: Callable[[Iterable[str]], object], size: int, jobs: int, queue: str) -> float:
    """Of the hash, and of the queue's key by the number of its entries, by MEMORY USAGE."""
    conn.flushall()
    chance = random.Random(size)
    enqueue(base64.b64encode(chance.randbytes(size)).decode()[:size] for _ in range(jobs))
    keys = list(conn.scan_iter("rq:job:*", count=1_000))
    assert len(keys) == jobs
    total = sum(int(conn.memory_usage(key, samples=0) or 0) for key in [*keys, queue])
    return total / jobs
