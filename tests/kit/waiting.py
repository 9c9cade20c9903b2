"""Helpers of the tests: waiting on a condition, never on time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], timeout: float = 30.0, interval: float = 0.01, why: str = "") -> T:
    """The first true answer of `check`; AssertionError with what it last said after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {why or getattr(check, '__name__', check)} (last answer: {answer!r})")
        time.sleep(interval)


def unhurried(seconds: float) -> float:
    """This many seconds on a quiet machine, more on a loaded one: for limits after which a test has something killed, never for a promise."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / 2)
