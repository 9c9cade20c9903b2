"""`python -m benchmarks.produce PEER`: a producer in a process of its own, so that no contender's imports weigh on another's. It reads an order
from each line of its input, a list in JSON, and answers with a line of JSON.

- `fill TASK JOBS BYTES`: enqueue this many calls with a payload of this many bytes, in bulk if there is a call for it; null.
- `one TASK SECONDS BYTES`: enqueue call by call for this long: jobs, seconds.
- `many TASK SECONDS BYTES`: the same with the library's bulk call; null if it has none.
- `start TASK JOBS GAP`: enqueue a call once the one before has started and GAP seconds have passed: milliseconds from the call to the start.
"""

from __future__ import annotations

import base64
import json
import os
import random
import sys
import time

from benchmarks.peers.base import URL, Producer
from benchmarks.peers.registry import peer

#: Jobs of a bulk call.
BULK = 2000
#: Seconds within which a job has to start.
LIMIT = 30.0

Calls = list[tuple[object, ...]]


def calls(jobs: int, size: int) -> Calls:
    """Arguments of this many calls: nothing, or a text of this many bytes which does not compress (base64 of random bytes)."""
    chance = random.Random(size)
    return [(base64.b64encode(chance.randbytes(size)).decode()[:size],) if size else () for _ in range(jobs)]


def fill(producer: Producer, task: str, jobs: int, size: int) -> None:
    """Enqueue, as fast as the library can."""
    for start in range(0, jobs, 20 * BULK):
        batch = calls(min(20 * BULK, jobs - start), size)
        if not producer.many(task, batch):
            for call in batch:
                producer.one(task, *call)


def one(producer: Producer, task: str, seconds: float, size: int) -> list[float]:
    """Enqueue call by call."""
    prepared, jobs, began = calls(BULK, size), 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        producer.one(task, *prepared[jobs % BULK])
        jobs += 1
    return [jobs, took]


def many(producer: Producer, task: str, seconds: float, size: int) -> list[float] | None:
    """Enqueue in bulk."""
    prepared, jobs, began = calls(BULK, size), 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        if not producer.many(task, prepared):
            return None
        jobs += BULK
    return [jobs, took]


def start(producer: Producer, task: str, jobs: int, gap: float) -> list[float]:
    """Enqueue calls of `stamp`, each on workers that are idle again."""
    witness = os.environ["BENCH_WITNESS"]
    with open(witness) as lines:
        lines.seek(0, os.SEEK_END)
        for _ in range(jobs):
            before, until = os.stat(witness).st_size, time.monotonic() + LIMIT
            producer.one(task, time.monotonic_ns())
            while os.stat(witness).st_size == before:
                if time.monotonic() > until:
                    raise SystemExit(f"a job did not start within {LIMIT:.0f} s")
                time.sleep(0.0005)
            time.sleep(gap)
        # A job of the phase before may have left its point late.
        return [(int(started) - int(sent)) / 1e6 for sent, started in (line.lstrip(".").split() for line in lines)]


def main() -> None:
    """Carry out orders until there are no more."""
    make = peer(sys.argv[1]).producer
    assert make is not None
    producer = make(URL)
    try:
        for line in sys.stdin:
            order, task, *numbers = json.loads(line)
            print(
                json.dumps({"fill": fill, "one": one, "many": many, "start": start}[order](producer, task, *numbers)), flush=True
            )
    finally:
        producer.close()


if __name__ == "__main__":
    main()
