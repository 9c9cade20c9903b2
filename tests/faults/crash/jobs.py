"""Jobs of the crash matrix: each notes its runs, as `ran <job id> <pid>`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from fusion import get_current_job
from fusion.log import Log
from fusion.middleware import WorkerMiddleware
from tests.jobs.basic import witness


def gated(seen: str, gate: str) -> None:
    """Runs while the file at `gate` is there."""
    witness(seen, "ran")
    while os.path.exists(gate):
        time.sleep(0.005)


def fails_once(seen: str) -> None:
    witness(seen, "ran")
    current = get_current_job()
    assert current is not None
    with open(seen) as file:
        if sum(line.split()[1] == current.id for line in file) == 1:
            raise ConnectionError("refused, the first time")


def short(seen: str) -> None:
    witness(seen, "ran")


def called(job: Any, connection: Any, result: Any) -> None:
    """A callback."""


class AtEnd(WorkerMiddleware):
    """Has something called when a task is over."""

    def around_job(self, job: Any) -> Iterator[None]:
        yield


def leaves(seen: str) -> None:
    """A short one after which its process is replaced."""
    witness(seen, "ran")
    os.environ["LEFT"] = "behind"


def lingers(seen: str) -> None:
    """Too long for others to wait behind it."""
    witness(seen, "ran")
    time.sleep(0.2)


def speaks(seen: str, gate: str) -> None:
    """Tells the worker something while it runs, and runs while the file at `gate` is there."""
    witness(seen, "ran")
    current = get_current_job()
    assert current is not None
    current.meta["stage"] = "under way"
    current.save_meta()
    current.progress(1, 2, "under way")
    Log.log("under way")
    print("under way")
    while os.path.exists(gate):
        time.sleep(0.005)
