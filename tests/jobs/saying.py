"""Tasks that say something by Log."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from fusion import get_current_job
from fusion.log import Log


def say(message: str, **fields: Any) -> list[str]:
    """Returns what of Redis's client this process has loaded for it."""
    Log.log(message, **fields)
    return sorted(name for name in sys.modules if name.split(".")[0] in ("redis", "hiredis", "logging", "socket"))


def steps() -> None:
    Log.start("one")
    Log.execution_start("two")
    Log.execution_success("three")
    Log.execution_failed("four", why="five")
    Log.execution_retry()


def many(count: int) -> float:
    """Returns the seconds it took."""
    begin = time.perf_counter()
    for n in range(count):
        Log.log(f"line {n:x}")
    return time.perf_counter() - begin


def for_ever() -> None:
    while True:
        Log.log("again")


def in_a_child() -> int:
    pid = os.fork()
    if pid == 0:
        Log.log("from a child")
        os._exit(7)
    Log.log("from the task")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def without_a_socket() -> str:
    os.closerange(1024, 1100)
    Log.log("into nothing")
    return "went on"


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no text")


def nonsense() -> str:
    Log.log(Unprintable(), field=Unprintable(), message="a name of the method's own", self=1)
    Log.log(None)
    Log.log("deep", data={"password": "abc", "list": [1, {"token": "abc"}]})
    return "went on"


def then_waits(gate: str) -> None:
    """Save meta and speak at once, then wait while the file at `gate` is there."""
    job = get_current_job()
    assert job is not None
    job.meta["stage"] = "under way"
    job.save_meta()
    Log.log("saved")
    while os.path.exists(gate):
        time.sleep(0.005)


def waits_then(gate: str) -> None:
    while os.path.exists(gate):
        time.sleep(0.005)
    Log.log("said at last")
