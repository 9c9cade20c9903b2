"""The soak's producer: `python -m tests.faults.soak_producer SEED JOBS DIRECTORY`.

Reads from stdin up to which job it may go. Before a call it writes the id to `tried`, after it has returned to `acknowledged`: one
O_APPEND write each. Killed and started again it goes on with what was not acknowledged, under the same ids.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from redis.exceptions import RedisError

from fusion import Queue
from fusion.exceptions import DuplicateJob, FusionError
from tests.faults.soak_plan import job


class Notes:
    """Ids, a line each, in a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        self.known = set(path.read_text().split()) if path.exists() else set()
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, job_id: str) -> None:
        os.write(self._fd, f"{job_id}\n".encode())


def main(seed: int, jobs: int, directory: Path) -> None:
    tried, acknowledged = Notes(directory / "tried"), Notes(directory / "acknowledged")
    allowed, source = 0, sys.stdin.fileno()
    pending = b""
    for n in range(jobs):
        while n >= allowed:
            data = os.read(source, 4096)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            allowed = max([allowed, *map(int, filter(None, lines))])
        if f"s{n:06d}" not in acknowledged.known:
            tried.add(f"s{n:06d}")
            _enqueue(seed, n)
            acknowledged.add(f"s{n:06d}")


def _enqueue(seed: int, n: int) -> None:
    """Until Redis has said yes, or that it has the job already."""
    spec = job(seed, n)
    queue = Queue(spec.queue)
    later = {"enqueue_in": spec.later} if spec.later else {}
    while True:
        try:
            queue.enqueue(spec.function, *spec.args, job_id=spec.id, **later, **spec.options)
            return
        except DuplicateJob:
            return
        except (RedisError, FusionError, OSError) as error:
            print(f"{spec.id}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
