"""`python -m benchmarks.produce PEER WHAT ...`: a producer in a process of its own, so that no contender's imports weigh on another's.

- `one TASK JOBS BYTES`: enqueue so many calls with a payload of so many bytes; print the seconds.
- `many TASK JOBS BYTES`: the same with the library's bulk call; print nothing if it has none.
- `fill TASK JOBS BYTES`: the same in whichever way is there.
- `latency JOBS GAP`: enqueue a call once the one before has started and GAP seconds have passed; the witness file holds the times.
"""

from __future__ import annotations

import os
import sys
import time

from benchmarks.peers.base import URL, Producer
from benchmarks.peers.registry import peer


def _fill(producer: Producer, what: str, task: str, jobs: int, size: int) -> float | None:
    """Seconds that it took; None if there is no such call."""
    payload = "x" * size
    calls: list[tuple[object, ...]] = [(payload,)] * jobs if size else [()] * jobs
    started = time.perf_counter()
    in_bulk = what != "one" and producer.many(task, calls)
    if what == "many" and not in_bulk:
        return None
    for call in () if in_bulk else calls:
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
    """Do what the arguments say."""
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
