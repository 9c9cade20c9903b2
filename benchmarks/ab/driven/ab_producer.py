"""The producer of one version: reads an order from each line of its input and answers with a line of JSON.

- `where`: the path of the `fusion` that this process has imported.
- `fill N`, `each N`: enqueue N no-ops, at once or call by call.
- `census`: enqueue the task that counts modules.
- `one S`, `many S`: enqueue for S seconds, call by call or in bulk: jobs, seconds and CPU seconds.
- `start S`: for S seconds, enqueue a job once the one before has started: jobs, seconds, CPU seconds and the median start in milliseconds.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import fusion
from fusion import Queue

#: Jobs of a bulk call.
BULK = 2000
#: Seconds between a start and the next call: the worker waits again after that.
GAP = 0.01
#: Seconds within which a job has to start.
LIMIT = 30.0

queue = Queue("default")


def one() -> int:
    """Enqueue a no-op."""
    queue.enqueue("ab_tasks.noop")
    return 1


def many(jobs: int = BULK) -> int:
    """Enqueue no-ops in bulk."""
    queue.enqueue_many([Queue.prepare_data("ab_tasks.noop") for _ in range(jobs)])
    return jobs


def start() -> int:
    """Enqueue a job and wait until it has started."""
    before = os.stat(os.environ["AB_WITNESS"]).st_size
    queue.enqueue("ab_tasks.stamp", time.monotonic_ns())
    until = time.monotonic() + LIMIT
    while os.stat(os.environ["AB_WITNESS"]).st_size == before:
        if time.monotonic() > until:
            raise SystemExit(f"a job did not start within {LIMIT:.0f} s")
        time.sleep(0.0005)
    time.sleep(GAP)
    return 1


def repeat(call: Callable[[], int], seconds: float) -> dict[str, float]:
    """Call again and again for this long."""
    jobs, cpu, began = 0, time.process_time(), time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        jobs += call()
    return {"jobs": jobs, "seconds": took, "cpu": time.process_time() - cpu}


def starts(seconds: float) -> dict[str, float]:
    """`start` again and again, and the median of what the tasks have noted."""
    with open(os.environ["AB_WITNESS"]) as witness:
        witness.seek(0, os.SEEK_END)
        answer = repeat(start, seconds)
        return {**answer, "median": statistics.median(int(line) / 1e6 for line in witness)}


def obey(order: str, *rest: str) -> object:
    """Carry out an order; returns the answer."""
    if order == "where":
        return fusion.__file__
    if order == "census":
        return queue.enqueue("ab_tasks.census").id
    if order == "fill":
        return many(int(rest[0]))
    if order == "each":
        return sum(one() for _ in range(int(rest[0])))
    if order == "start":
        return starts(float(rest[0]))
    return repeat({"one": one, "many": many}[order], float(rest[0]))


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(obey(*line.split())), flush=True)
