"""Marks of `@job(batch=..., batch_wait=...)` on a task: how many of its jobs go to one call, and how long the first waits for others."""

from __future__ import annotations

from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from datetime import timedelta
    from typing import Any

#: Most jobs of one call; most seconds that a job may wait for others.
MOST, LONGEST = 1000, 60.0
#: Flags of a code object whose call makes a generator, sync or async. As in `inspect`, which costs every process 2 MB.
GENERATES = 0x20 | 0x200
#: The attribute of a marked function; a record stores its value in the field `gather`: `100 0.2`.
MARK = "__fusion_gather__"


def mark(function: Any, most: int, wait: float | str | timedelta) -> None:
    """Mark a function so that several jobs share a call. TypeError for one without `yield`, ValueError for invalid figures."""
    from fusion.kernel.timeutil import parse_seconds  # here: a job's process needs it only for such a task

    if not (isinstance(function, FunctionType) and function.__code__.co_flags & GENERATES):
        name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}"
        raise TypeError(
            f"{name}: with batch= a task is given a list of jobs, and yields each with its result: `yield job, result`"
        )
    if type(most) is not int or not 1 <= most <= MOST:
        raise ValueError(f"batch={most!r}: the jobs of one call are a whole number from 1 to {MOST}")
    short = isinstance(wait, str) and wait.endswith("ms")
    seconds = parse_seconds(wait[:-2]) / 1000 if isinstance(wait, str) and short else parse_seconds(wait)
    if not 0 <= seconds <= LONGEST:
        raise ValueError(f"batch_wait={wait!r}: a job is kept for others for 0 to {LONGEST:g} s")
    setattr(function, MARK, f"{most} {seconds:g}")


def marked(function: Any) -> str | None:
    """Return the field `gather` for the record of a call of this function; None if each job has its own call. Only a mark on a real function
    counts."""
    return function.__dict__.get(MARK) if isinstance(function, FunctionType) else None


def parse(raw: bytes) -> tuple[int, float] | None:
    """Return the most jobs of a call, and the seconds for which the first waits. None for an invalid text, or if one job fills a call."""
    most, _, seconds = raw.partition(b" ")
    try:
        found = int(most), float(seconds)
    except ValueError:
        return None
    return found if 1 < found[0] <= MOST and 0 <= found[1] <= LONGEST else None
