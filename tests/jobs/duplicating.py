"""A program that enqueues jobs with unique keys, and goes on where it was when it was killed."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from fusion import Queue
from tests.jobs import basic

#: By the first letter of a key: what its jobs say of it.
KINDS = {
    "e": {},
    "s": {"unique_until": "start"},
    "w": {"unique_window": 3600},
    "a": {"unique_until": "accept", "unique_window": 3600},
}


def produce(place: Path, calls: int, keys: int) -> None:
    queue, chance = Queue("s"), random.Random(place.name)
    done = len(place.read_text()) if place.exists() else 0
    names = [f"{kind}{n}" for kind in KINDS for n in range(keys)]
    with place.open("a", buffering=1) as progress:
        for _ in range(done, calls):
            key = chance.choice(names)
            queue.options(unique_key=key, result_ttl=-1, **KINDS[key[0]]).enqueue(basic.noop)
            progress.write(".")
            progress.flush()


if __name__ == "__main__":
    produce(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
