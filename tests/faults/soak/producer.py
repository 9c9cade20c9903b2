"""The soak's producer: `python -m tests.faults.soak.producer SEED JOBS RUSH DIRECTORY`.

Reads from stdin up to which job it may go. Before a call it writes the id to `tried`, after it has returned to `acknowledged`: one
O_APPEND write each. Killed and started again it goes on with what was not acknowledged, under the same ids.
RUSH more, short ones, come many at a time between the others.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from redis.exceptions import RedisError

from fusion import Queue
from fusion.exceptions import DuplicateJob, FusionError
from tests.faults.soak.plan import BETWEEN, RUSH, job, rush_job


class Notes:
    """Ids, a line each, in a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        self.known = set(path.read_text().split()) if path.exists() else set()
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, *job_ids: str) -> None:
        os.write(self._fd, "".join(f"{job_id}\n" for job_id in job_ids).encode())


def main(seed: int, jobs: int, rush: int, directory: Path) -> None:
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
        if (n + 1) % BETWEEN == 0:
            _rush(seed, range(rush * (n + 1 - BETWEEN) // jobs, rush * (n + 1) // jobs), tried, acknowledged)


def _rush(seed: int, numbers: range, tried: Notes, acknowledged: Notes) -> None:
    """At once, so that there are more than can run."""
    specs = [spec for n in numbers if (spec := rush_job(seed, n)).id not in acknowledged.known]
    for at in range(0, len(specs), 500):
        chunk = specs[at : at + 500]
        ids = [spec.id for spec in chunk]
        prepared = [Queue.prepare_data(spec.function, spec.args, job_id=spec.id, **spec.options) for spec in chunk]
        tried.add(*ids)
        _until_accepted(ids[0], lambda prepared=prepared: Queue(RUSH).enqueue_many(prepared))  # type: ignore[misc]
        acknowledged.add(*ids)


def _enqueue(seed: int, n: int) -> None:
    spec = job(seed, n)
    queue = Queue(spec.queue)
    later = {"enqueue_in": spec.later} if spec.later else {}
    _until_accepted(spec.id, lambda: queue.enqueue(spec.function, *spec.args, job_id=spec.id, **later, **spec.options))


def _until_accepted(name: str, call: Callable[[], object]) -> None:
    """Until Redis has said yes, or that it has the job already."""
    while True:
        try:
            call()
            return
        except DuplicateJob:
            return
        except (RedisError, FusionError, OSError) as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
