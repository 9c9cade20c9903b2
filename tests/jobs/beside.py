"""Tasks that run beside others in one process."""

from __future__ import annotations

import threading
import time

from fusion import get_current_job
from fusion.context import CurrentJob


def _job() -> CurrentJob:
    job = get_current_job()
    assert job is not None
    return job


def slowly(number: int) -> list[str | None]:
    """The current job's id before and after a moment, and that which a thread of its own sees."""
    before = _job().id
    _job().meta["number"] = number
    _job().save_meta()
    seen: list[str | None] = []

    def look() -> None:
        job = get_current_job()
        seen.append(job.id if job else None)

    thread = threading.Thread(target=look)
    thread.start()
    time.sleep(0.05)
    thread.join()
    _job().check()
    return [before, _job().id, *seen]


def note(job: CurrentJob, connection: None, value: object) -> None:
    """A callback."""
    assert _job() is job
    job.meta["noted"] = job.id
