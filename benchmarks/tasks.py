"""The tasks that every contender runs. Each run leaves its trace in the file that BENCH_WITNESS names."""

from __future__ import annotations

import os
import time

#: Seconds of I/O.
NAP = 0.02
#: The names of what contenders register, as threads or processes run it and as a loop does.
PLAIN = ("noop", "stamp", "hold", "nap", "compute", "stay")
COROUTINES = ("noop_async", "nap_async", "compute_async", "stay_async")

_fd = -1


def _witness() -> int:
    global _fd
    if _fd < 0:
        _fd = os.open(os.environ["BENCH_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    return _fd


def noop(payload: str = "") -> None:
    """Leave one byte."""
    os.write(_witness(), b".")


def stamp(sent: int) -> None:
    """Leave a line: when the job was sent and when it started, in ns of the monotonic clock, which all processes of a machine share."""
    os.write(_witness(), b"%d %d\n" % (sent, time.monotonic_ns()))


def hold(seconds: float) -> None:
    """Keep a slot for this long."""
    time.sleep(seconds)


def nap(payload: str = "") -> None:
    """Wait 20 ms, as for an answer from elsewhere, then leave one byte."""
    time.sleep(NAP)
    noop(payload)


def compute(payload: str = "") -> None:
    """Some milliseconds of Python, then leave one byte."""
    sum(number * number for number in range(50_000))
    noop(payload)


def stay(payload: str = "") -> None:
    """Leave one byte and keep a slot."""
    noop(payload)
    time.sleep(600)


async def noop_async(payload: str = "") -> None:
    """`noop` as a coroutine."""
    noop(payload)


async def nap_async(payload: str = "") -> None:
    """`nap` as a coroutine."""
    from asyncio import sleep  # here: the other tasks' module is to stay small

    await sleep(NAP)
    noop(payload)


async def compute_async(payload: str = "") -> None:
    """`compute` as a coroutine, which holds up the loop meanwhile."""
    compute(payload)


async def stay_async(payload: str = "") -> None:
    """`stay` as a coroutine."""
    from asyncio import sleep

    noop(payload)
    await sleep(600)


def quiet() -> None:
    """Leave no trace."""
