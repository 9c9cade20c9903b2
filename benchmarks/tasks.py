"""The tasks that every contender runs. Each run leaves its trace in the file that BENCH_WITNESS names."""

from __future__ import annotations

import os
import time

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
    """Keep a slot for so long."""
    time.sleep(seconds)


def quiet() -> None:
    """Leave no trace."""
