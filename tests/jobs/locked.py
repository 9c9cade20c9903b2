"""Tasks of the tests that take locks."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress

import fusion
from fusion import lock  # here, so that not each job's process imports redis-py
from fusion.context import get_current_job
from tests.jobs.basic import witness


def inside(path: str, name: str, seconds: float = 0.0, wait: float = 30.0) -> int:
    """Note the block's beginning and end; return the number."""
    with fusion.lock(name, wait) as number:
        witness(path, f"begin-{number}")
        time.sleep(seconds)
        witness(path, f"end-{number}")
    return number


async def inside_async(path: str, name: str, seconds: float = 0.0, wait: float = 30.0) -> int:
    """The same in a coroutine."""
    async with fusion.lock(name, wait) as number:
        witness(path, f"begin-{number}")
        await asyncio.sleep(seconds)
        witness(path, f"end-{number}")
    return number


def until_gone(path: str, gate: str, name: str) -> int:
    """Keep the lock until the file `gate` is removed."""
    with fusion.lock(name, 30) as number:
        witness(path, f"begin-{number}")
        while os.path.exists(gate):
            time.sleep(0.005)
        witness(path, f"end-{number}")
    return number


async def until_gone_async(path: str, gate: str, name: str) -> int:
    """The same in a coroutine."""
    async with fusion.lock(name, 30) as number:
        witness(path, f"begin-{number}")
        while os.path.exists(gate):
            await asyncio.sleep(0.005)
        witness(path, f"end-{number}")
    return number


def killed_inside(path: str, gate: str, name: str) -> int:
    """The first run kills its process in the block."""
    with fusion.lock(name, 30) as number:
        witness(path, f"begin-{number}")
        if os.path.exists(gate):
            os.unlink(gate)
            os.kill(os.getpid(), 9)
        witness(path, f"end-{number}")
    return number


def left_open(name: str) -> int:
    """End with the lock: nothing gives it back."""
    return fusion.lock(name, 5).__enter__()


def refusals(name: str, own: str) -> list[str]:
    """The numbers that a run gets."""
    told = []
    with fusion.lock(name):
        for wrong in (fusion.lock(name), fusion.lock(own)):
            try:
                wrong.__enter__()
            except fusion.LockError as error:
                told.append(error.text())
    with fusion.lock(name), fusion.lock(name + "2"):
        told.append("two at once")
    return told


async def in_a_loop(name: str) -> str:
    """A plain `with` in a coroutine."""
    try:
        with fusion.lock(name):
            return "had it"
    except fusion.LockError as error:
        return error.text()


def raises_inside(name: str) -> int:
    """The block raises, and the run goes on without the lock."""
    with suppress(ValueError), fusion.lock(name):
        raise ValueError
    with fusion.lock(name, 0) as number:
        return number


def timed_out(name: str, wait: float) -> float:
    """How long it waited."""
    began = time.monotonic()
    try:
        with fusion.lock(name, wait):
            return -1.0
    except fusion.LockTimeout as error:
        return time.monotonic() - began if (error.lock, error.wait) == (name, wait) else -2.0


def counted(path: str, name: str) -> None:
    """Read a number, and write one more: two at once would lose one."""
    with lock(name, 60):
        with open(path) as file:
            number = int(file.read())
        time.sleep(0.002)
        with open(path, "w") as file:
            file.write(str(number + 1))
    assert get_current_job() is not None


async def counted_async(path: str, name: str) -> None:
    """The same in a coroutine."""
    async with lock(name, 60):
        with open(path) as file:
            number = int(file.read())
        await asyncio.sleep(0.002)
        with open(path, "w") as file:
            file.write(str(number + 1))
