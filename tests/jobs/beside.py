"""Tasks that run beside others in one process."""

from __future__ import annotations

import decimal
import os
import sys
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


def failed(job: CurrentJob, connection: None, kind: type[BaseException], error: BaseException, tb: object) -> None:
    """A callback that was given, and amid which can be asked for, what the task raised."""
    assert type(error) is kind
    assert sys.exception() is error
    job.meta["failed"] = str(error)


def stopped(job: CurrentJob, connection: None) -> None:
    """A callback on_stopped."""
    job.meta["stopped"] = True


def turns(seconds: float) -> float:
    """Lets other threads run, and never waits in C for long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.001)
    return seconds


def checks() -> None:
    """Ends where it asks."""
    while True:
        time.sleep(0.01)
        _job().check()


def thread() -> str:
    """The name of its thread."""
    return threading.current_thread().name


def precision() -> int:
    """Leaves decimal's changed, which is of its context."""
    found = decimal.getcontext().prec
    decimal.getcontext().prec = 5
    return found


def forks() -> int:
    """Its child comes back from the task."""
    pid = os.fork()
    if pid == 0:
        return -1
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def prints(line: str) -> None:
    """As tasks do."""
    print(line)
