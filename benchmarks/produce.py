"""`python -m benchmarks.produce PEER WHAT ...`: a producer in a process of its own, so that no contender's imports weigh on another's.

`one|many TASK JOBS BYTES`: enqueue so many calls with a payload of so many bytes; prints seconds, or nothing if the library has no bulk call.
`latency JOBS GAP`: one call after the other, each after the one before has started and GAP seconds; the witness file holds the times.
"""

from __future__ import annotations

import os
import sys
import time

from benchmarks.peers.base import URL, Producer
from benchmarks.peers.registry import peer


def _fill(producer: Producer, what: str, task: str, jobs: int, size: int) -> float | None:
    payload = "x" * size
    calls: list[tuple[object, ...]] = [(payload,)] * jobs if size else [()] * jobs
    started = time.perf_counter()
    if what == "many":
        if not producer.many(task, calls):
            return None
    else:
        for call in calls:
            producer.one(task, *call)
    return time.perf_counter() - started


def _latency(producer: Producer, jobs: int, gap: float) -> None:
    witness = os.environ["BENCH_WITNESS"]
    for n in range(1, jobs + 1):
        producer.one("stamp", time.monotonic_ns())
        until = time.monotonic() + 30
        while not os.path.exists(witness) or _lines(witness) < n:
            if time.monotonic() > until:
                raise SystemExit(f"call {n} did not start within 30 s")
            time.sleep(0.001)
        time.sleep(gap)


def _lines(path: str) -> int:
    with open(path, "rb") as file:
        return file.read().count(b"\n")


def main() -> None:
    name, what, *rest = sys.argv[1:]
    producer = peer(name).producer(URL)
    try:
        if what == "latency":
            _latency(producer, int(rest[0]), float(rest[1]))
        else:
            seconds = _fill(producer, what, rest[0], int(rest[1]), int(rest[2]))
            if seconds is not None:
                print(seconds)
    finally:
        producer.close()


if __name__ == "__main__":
    main()
