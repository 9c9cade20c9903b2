"""The time from a call of `enqueue` to the first line of its task."""

from __future__ import annotations

import random
import sys
import time
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.contestant import Contestant
from benchmarks.figures.figure import Effort, Figure, Found
from benchmarks.peers.base import Conditions
from fusion import Queue
from fusion.store.client.connections import connect

_STAMP = "benchmarks.tasks.stamp"
#: Starts that one contender has in turn, and seconds between a start and the next call.
_TURN, _GAP = 10, 0.02


def idle(effort: Effort) -> Found:
    """On workers that wait. All contenders' are up and idle; each has some starts in turn."""
    plain = Conditions()
    shipped = replace(plain, quiet=False, modules=("tasks", "benchmarks.tasks"))
    entered = {
        "Fusion, one process per job": ("fusion", plain),
        "Fusion, pool mode": ("fusion-pool", plain),
        "Huey": ("huey", plain),
        "RQ": ("rq", plain),
        "Fusion as it comes, one process per job": ("fusion", shipped),
        "Fusion as it comes, pool mode": ("fusion-pool-shipped", shipped),
        "Huey, default log": ("huey", _loud(plain)),
    }
    times: dict[str, list[float]] = {}
    with ExitStack() as stack:
        contestants = {}
        for name, (key, asked) in entered.items():
            try:
                contestants[name] = stack.enter_context(Contestant(key, asked))
            except ImportError as error:
                print(f"{name}: left out, {error}; pip install '.[bench]'", file=sys.stderr)
        time.sleep(1)  # what a start does by the way
        for one in contestants.values():
            one.order("start", _STAMP, 3, _GAP)
        left = effort.starts
        while left > 0:
            for name in random.sample(list(contestants), len(contestants)):
                times.setdefault(name, []).extend(contestants[name].order("start", _STAMP, min(left, _TURN), _GAP))
            left -= _TURN
    found = []
    for name in contestants:
        values = times[name]
        limit = 10.0 if name in ("Fusion, one process per job", "Fusion, pool mode") else None
        found.append(Figure("start", f"{name}, p50", part(values, 0.5), "ms"))
        found.append(Figure("start", f"{name}, p99", part(values, 0.99), "ms", at_most=limit))
    for ours, theirs, most in (
        ("Fusion, pool mode", "Huey", 1.5),
        ("Fusion, one process per job", "Huey", 1.8),
        ("Fusion, one process per job", "RQ", None),
        ("Fusion as it comes, pool mode", "Huey, default log", None),
        ("Fusion as it comes, one process per job", "Huey, default log", None),
    ):
        if ours in times and theirs in times:
            ratio = part(times[ours], 0.5) / part(times[theirs], 0.5)
            found.append(Figure("start", f"p50: {ours} / {theirs}", ratio, at_most=most))
    return Found(found)


def high(effort: Effort) -> Found:
    """Of HIGH jobs: beside long LOW jobs with a slot reserved, and amid many short LOW jobs."""
    beside = Conditions(processes=5, flags=("--reserve-high", "1"))
    found = []
    with Contestant("fusion", beside) as one:
        conn = connect(one.url)
        queue = Queue("default", conn)
        held = 4 + 4 * (1 + effort.starts // 100)
        queue.enqueue_many([Queue.prepare_data("benchmarks.tasks.hold", (5.0,), priority=0) for _ in range(held)])
        one.until(lambda: conn.zcard("rq:wip:default") == 4)
        times = _high(one, queue, effort.starts)
        conn.close()
    found.append(Figure("high", "beside 4 LOW jobs of 5 s, p50", part(times, 0.5), "ms"))
    found.append(Figure("high", "beside 4 LOW jobs of 5 s, p99", part(times, 0.99), "ms", at_most=20.0))
    for name, key, asked in (
        ("one process per job", "fusion", Conditions()),
        ("2 warm processes", "fusion-pool", Conditions(processes=2)),
    ):
        found += _amid(name, key, asked, effort)
    return Found(found)


def _amid(name: str, key: str, asked: Conditions, effort: Effort) -> list[Figure]:
    """Starts on an idle worker, and then while its LOW jobs drain."""
    with Contestant(key, asked) as one:
        conn = connect(one.url)
        queue = Queue("default", conn)
        quiet = _high(one, queue, effort.starts)
        queue.enqueue_many(Queue.prepare_data("benchmarks.tasks.quiet", priority=0) for _ in range(effort.drained))
        amid = _high(one, queue, effort.starts)
        left = conn.zcard("rq:queue:default")
        conn.close()
    if not left:
        print(f"HIGH amid LOW, {name}: the LOW jobs ran out before the HIGH ones", file=sys.stderr)
    return [
        Figure("high", f"idle, {name}, p50", part(quiet, 0.5), "ms"),
        Figure("high", f"idle, {name}, p99", part(quiet, 0.99), "ms"),
        Figure("high", f"amid a LOW drain, {name}, p50", part(amid, 0.5), "ms"),
        Figure("high", f"amid a LOW drain, {name}, p99", part(amid, 0.99), "ms"),
        Figure("high", f"later amid a LOW drain than idle, {name}, p50", part(amid, 0.5) - part(quiet, 0.5), "ms", at_most=5.0),
        Figure("high", f"later amid a LOW drain than idle, {name}, p99", part(amid, 0.99) - part(quiet, 0.99), "ms", at_most=5.0),
    ]


def _high(one: Contestant, queue: Queue, count: int) -> list[float]:
    """Milliseconds to the starts of this many HIGH jobs, each enqueued once the one before has started."""
    times = []
    for _ in range(count):
        before = one.jobs
        queue.enqueue(_STAMP, time.monotonic_ns(), priority=2)
        one.until(lambda before=before: one.jobs > before)  # type: ignore[misc]
        times.append(one.last_start())
        time.sleep(_GAP)
    return times


def _loud(asked: Conditions) -> Conditions:
    return replace(asked, quiet=False)


def part(values: list[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
