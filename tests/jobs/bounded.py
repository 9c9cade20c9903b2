"""Tasks of queues that are bounded: they count each other outside Redis, or are held back."""

from __future__ import annotations

import os
import time
from pathlib import Path

from fusion import get_current_job
from tests.jobs.basic import witness


def noop() -> None:
    pass


def nap(seconds: float) -> None:
    time.sleep(seconds)


def _lives(name: str) -> bool:
    try:
        with open(f"/proc/{name}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def counted(directory: str, seconds: float) -> None:
    """Note how many of these tasks live now, this one included."""
    running = Path(directory) / "running"
    current = get_current_job()
    assert current is not None
    mine = running / f"{os.getpid()}-{current.execution_id}"  # beside others in its process, maybe
    mine.touch()
    witness(f"{directory}/seen", str(sum(_lives(name.partition("-")[0]) for name in os.listdir(running))))
    time.sleep(seconds)
    mine.unlink()


def refused(path: str, seconds: float, times: int) -> str:
    """A provider wants no more calls, this many times."""
    witness(path, "run")
    with open(path) as file:
        count = sum(1 for _ in file)
    job = get_current_job()
    assert job is not None
    if count <= times:
        job.rate_limited(seconds, "429")
    return f"run {count}"
