"""Tasks that see for themselves, outside Redis, how many of their key run at once."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from fusion.decorators import job


@job(concurrency_key=lambda user: f"user:{user}", max_concurrent=1)
def sync(user: int) -> int:
    """A task that declares a key for all its calls."""
    return user


@job(max_concurrent=2)
def crawl() -> None:
    """One that declares a limit of its own."""


@job(fair_key="tenant")
def report() -> None:
    """One that declares nothing that bounds it."""


def among(directory: str, key: str, number: int, places: int = 1, seconds: float = 0.0) -> None:
    """Note the start, take one of the key's places for the time of the run, and tell if there is none: the kernel frees the place of who is
    killed."""
    home = Path(directory)
    _append(home / f"{key}.order", f"{number}\n")
    held = None
    for place in range(places):
        held = os.open(home / f"{key}.{place}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            os.close(held)
            held = None
    if held is None:
        _append(home / "too-many", f"{key} {number}\n")
        return
    if seconds:
        time.sleep(seconds)
    os.close(held)


def among_failing(directory: str, key: str, number: int, places: int = 1, seconds: float = 0.0) -> None:
    """As `among`, and fail at the end, each time."""
    among(directory, key, number, places, seconds)
    raise ValueError("this one always fails")


def _append(path: Path, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)
