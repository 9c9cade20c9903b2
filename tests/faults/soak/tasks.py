"""Tasks of the soak. Each run tells of itself in a file by one O_APPEND write: a witness that Redis has no part in."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

from fusion import get_current_job, job

#: The environment's name for the witness file.
WITNESS = "SOAK_WITNESS"
#: Set if some of the tasks are to be coroutines.
COROUTINES = "SOAK_COROUTINES"


#: As many jobs go to one call of `share` at most.
TOGETHER = 6


def say(line: str, where: str = "") -> None:
    """A line of the witness file, or of one beside it."""
    fd = os.open(os.environ[WITNESS] + where, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def note(what: str, current: Any = None) -> str:
    """`what job execution pid time`; returns the execution."""
    current = current or get_current_job()
    assert current is not None
    say(f"{what} {current.id} {current.execution_id} {os.getpid()} {time.time():.6f}")
    return str(current.execution_id)


def effect(seconds: float) -> str:
    """Returns its execution: the result tells who committed."""
    note("begin")
    time.sleep(seconds)
    return note("end")


def refuse() -> None:
    raise ValueError(f"no run={note('begin')}")


def flaky(failures: int) -> str:
    execution = note("begin")
    current = get_current_job()
    assert current is not None
    if current.attempts < failures:
        raise ConnectionError(f"not yet run={execution}")
    return note("end")


def hang() -> None:
    note("begin")
    time.sleep(3600)


def cling() -> None:
    """Ends at nothing but SIGKILL."""
    note("begin")
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            pass


def leave(code: int) -> None:
    note("begin")
    os._exit(code)


def crash(number: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    note("begin")
    os.kill(os.getpid(), number)
    time.sleep(60)


def steps(count: int, seconds: float) -> str:
    """Goes on where another run has got to, and tells of each step."""
    execution = note("begin")
    current = get_current_job()
    assert current is not None
    fd = os.open(f"{os.environ[WITNESS]}.steps", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for number in current.iterate(lambda done: iter(range(done or 0, count))):
        os.write(fd, f"{current.id} {execution} {number}\n".encode())
        current.progress(number, count)
        time.sleep(seconds)
    os.close(fd)
    return note("end")


def deaf(seconds: float) -> str:
    """Takes its stop for a mistake, for a while."""
    note("begin")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            time.sleep(max(0.0, until - time.monotonic()))
        except BaseException:
            pass
    return note("end")


def tick() -> str:
    note("begin")
    return note("end")


def link(given: object, seconds: float, fate: str = "") -> str:
    """A step of a chain: it tells what it was given."""
    execution = note("begin")
    current = get_current_job()
    assert current is not None
    say(f"{current.id} {execution} {given}", ".given")
    time.sleep(seconds)
    if fate == "refuse":
        raise ValueError(f"no run={execution}")
    if fate == "flaky" and current.attempts < 1:
        raise ConnectionError(f"not yet run={execution}")
    return note("end")


def heard(current: Any, _: object) -> None:
    """Its job was stopped."""
    say(f"{current.id} {current.execution_id}", ".stopped")


@job("steady", batch=TOGETHER, batch_wait="150ms")
def share(jobs: list[Any]) -> Iterator[tuple[Any, object]]:
    """One call for several jobs, each with a fate of its own; it tells who is in it."""
    say(" ".join(each.execution_id for each in jobs), ".calls")
    for each in jobs:
        note("begin", each)
    for each in jobs:
        seconds, fate = each.args
        time.sleep(3600 if fate == "hang" else seconds)
        if fate == "refuse":
            yield each, ValueError(f"no run={each.execution_id}")
        elif fate == "flaky" and each.attempts < 1:
            yield each, ConnectionError(f"not yet run={each.execution_id}")
        elif fate == "break":
            raise RuntimeError("the call breaks")
        elif fate == "leave":
            os._exit(3)
        elif fate != "silent" or len(jobs) == 1:
            yield each, note("end", each)


async def _effect(seconds: float) -> str:
    note("begin")
    await asyncio.sleep(seconds)
    return note("end")


async def _refuse() -> None:
    raise ValueError(f"no run={note('begin')}")


async def _hang() -> None:
    note("begin")
    await asyncio.sleep(3600)


async def _cling() -> None:
    note("begin")
    while True:
        with suppress(BaseException):
            await asyncio.sleep(3600)


if COROUTINES in os.environ:  # flaky, leave, crash, steps and deaf stay functions, in threads beside them
    import asyncio
    from contextlib import suppress

    effect, refuse, hang, cling = _effect, _refuse, _hang, _cling  # type: ignore[assignment]

SIGKILL, SIGSEGV = int(signal.SIGKILL), int(signal.SIGSEGV)
