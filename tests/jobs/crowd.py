"""Tasks that run among others in a process: coroutines and plain functions. Each leaves a line for its begin, and for its end."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import fusion
from fusion.context import CurrentJob


def _current() -> CurrentJob:
    job = fusion.get_current_job()
    assert job is not None
    return job


def _note(seen: str, word: str) -> None:
    with open(seen, "a") as file:
        file.write(f"{word} {_current().id} {os.getpid()}\n")


async def nap(seen: str, seconds: float) -> str:
    """Waits, as most jobs do."""
    _note(seen, "begun")
    await asyncio.sleep(seconds)
    _note(seen, "ended")
    return _current().id


def plain_nap(seen: str, seconds: float) -> str:
    """The same as a plain function, which can be struck between two moments."""
    _note(seen, "begun")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.02)
    _note(seen, "ended")
    return _current().id


async def which_loop() -> str:
    """The package that its loop is of."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def on_uvloop(seen: str, how: str) -> None:
    """Runs that loop itself, and is to clean up when it is struck there."""
    import_module("uvloop").run(_struck(seen, how))


async def _struck(seen: str, how: str) -> None:
    _note(seen, "begun")
    try:
        while how == "computes":
            sum(range(1000))
        await asyncio.sleep(100)
    finally:
        _note(seen, "cleaned")


def plain_where() -> list[Any]:
    """The same of a plain function."""
    job = _current()
    job.meta["seen"] = job.id
    time.sleep(0.05)
    fusion.Log.log(f"here is {job.id}")
    return [os.getpid(), job.id, _current().id]


async def where() -> list[Any]:
    """Its process, and what it sees of itself."""
    job = _current()
    job.meta["seen"] = job.id
    await asyncio.sleep(0.05)
    fusion.Log.log(f"here is {job.id}")
    return [os.getpid(), job.id, _current().id]


async def dies(seen: str, seconds: float) -> None:
    """Takes its process down."""
    _note(seen, "begun")
    await asyncio.sleep(seconds)
    ctypes.string_at(0)


def plain_dies(seen: str, seconds: float) -> None:
    """Takes its process down."""
    _note(seen, "begun")
    time.sleep(seconds)
    ctypes.string_at(0)


def plain_swallows(seen: str) -> None:
    """Does not end, whatever is asked."""
    _note(seen, "begun")
    while True:
        with suppress(fusion.JobTimeoutException):
            while True:
                time.sleep(0.05)


async def swallows(seen: str) -> None:
    """Does not end, whatever is asked."""
    _note(seen, "begun")
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


async def hogs(seconds: float) -> None:
    """Blocks the loop."""
    time.sleep(seconds)


async def hogs_and_notes(seen: str, seconds: float) -> None:
    """Blocks the loop, and says so before."""
    _note(seen, "hogs")
    time.sleep(seconds)


async def hogs_until(seen: str, freed: str) -> None:
    """Blocks the loop until this file is there."""
    _note(seen, "hogs")
    while not os.path.exists(freed):
        time.sleep(0.02)


async def naps_once(seen: str, seconds: float) -> None:
    """Waits in its first run, and in no other."""
    again = _has_begun(seen)
    _note(seen, "begun")
    await asyncio.sleep(0 if again else seconds)
    _note(seen, "ended")


def plain_naps_once(seen: str, seconds: float) -> None:
    """The same as a plain function."""
    again = _has_begun(seen)
    _note(seen, "begun")
    time.sleep(0 if again else seconds)
    _note(seen, "ended")


def _has_begun(seen: str) -> bool:
    return os.path.exists(seen) and f"begun {_current().id} " in Path(seen).read_text()


async def kills_itself(seen: str, seconds: float) -> None:
    """Takes its process down, as others do to one from outside."""
    _note(seen, "begun")
    await asyncio.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def plain_kills_itself(seen: str, seconds: float) -> None:
    """Takes its process down, as others do to one from outside."""
    _note(seen, "begun")
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


_all_tasks = asyncio.all_tasks
_left: set[asyncio.Task[None]] = set()


async def leaves_tasks(seen: str, seconds: float) -> str:
    """Ends, and two tasks that it has begun do not: one does after this many seconds, the other never."""
    _note(seen, "begun")
    _left.update((asyncio.create_task(_later(seen, seconds)), asyncio.create_task(_never_ends(seen))))
    await asyncio.sleep(0)
    return _current().id


async def _later(seen: str, seconds: float) -> None:
    await asyncio.sleep(seconds)
    job = _current()
    job.meta["left"] = "behind"
    job.save_meta()
    with suppress(RuntimeError):  # it is over
        job.progress(1, 2)
    _note(seen, "later")


async def _never_ends(seen: str) -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        _note(seen, "closed")


async def fails() -> None:
    """Raises."""
    raise ValueError("no")


async def cancels_itself() -> None:
    """Raises, and has its task cancelled before."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    raise ValueError("no")


async def cancels_all(how: str) -> int:
    """Cancels whatever it finds, as programs do at their end: by the name that it finds now, or by one that it was imported as before."""
    others = (asyncio.all_tasks() if how == "own" else _all_tasks()) - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.sleep(0.05)
    return len(others)


async def naps_in_subtasks(seen: str, seconds: float) -> None:
    """Waits for others of its own."""
    _note(seen, "begun")
    await asyncio.gather(*(asyncio.create_task(asyncio.sleep(seconds)) for _ in range(3)))
    _note(seen, "ended")


async def exits_in_a_subtask(awaited: bool) -> str:
    """Has another task of its own end the program."""
    task = asyncio.create_task(_exits())
    if awaited:
        await task
    await asyncio.sleep(0.1)
    return "done"


async def _exits() -> None:
    raise SystemExit(3)


class Unreadable(Exception):
    """Its attributes can't be read."""

    def __getattribute__(self, name: str) -> Any:
        raise LookupError(name)


def plain_raises_unreadable() -> None:
    """Raises what can't be looked at."""
    raise Unreadable("no")


async def raises_unreadable() -> None:
    """Raises what can't be looked at."""
    raise Unreadable("no")


class _Hanging:
    """A stream whose reader has gone to sleep."""

    def write(self, text: str) -> int:
        """Keeps it."""
        return len(text)

    def flush(self) -> None:
        """Does not end."""
        time.sleep(3600)


def plain_hangs_stdout() -> int:
    """Leaves a stream that hangs when it is flushed."""
    sys.stdout = _Hanging()  # type: ignore[assignment]
    return os.getpid()


async def hangs_stdout() -> int:
    """Leaves a stream that hangs when it is flushed."""
    return plain_hangs_stdout()


async def here() -> list[int]:
    """Its process, and how many threads that has."""
    return plain_here()


def plain_here() -> list[int]:
    """Its process, and how many threads that has."""
    return [os.getpid(), threading.active_count()]


def plain_breaks_fusion() -> int:
    """Spoils what each job in its process needs."""
    from fusion.execution import perform

    perform.split_call = None  # type: ignore[assignment]
    return os.getpid()


async def breaks_fusion() -> int:
    """Spoils what each job in its process needs."""
    return plain_breaks_fusion()
