"""Figures in a job's fields and in what its process sent. Both may be nonsense: foreign producers write fields, tasks can write frames."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from fusion.execution.callbacks import CALLBACKS
from fusion.kernel.defaults import FURTHEST


def priority(job: Mapping[bytes, bytes]) -> int:
    """A job's class; the lowest one if that is no number."""
    raw = job.get(b"priority", b"")
    return int(raw) if raw.isdigit() and len(raw) < 10 else 0


def time_limit(job: Mapping[bytes, bytes], grace: float) -> float:
    """Seconds after which a job's processes are killed; inf for never. ValueError if its timeout is no number."""
    value = float(job[b"timeout"])
    if not isfinite(value):
        raise ValueError(f"timeout {value} is no number of seconds")
    return min(value, FURTHEST) + grace if value > 0 else float("inf")


def elapsed(frame: Mapping[bytes, bytes]) -> float:
    """Seconds the task ran, as its process says; 0 if that is no time."""
    return _seconds(frame.get(b"elapsed"))


def standstill(frame: Mapping[bytes, bytes]) -> float:
    """Seconds for which an event loop has not come round, as its process says; 0 if that is no time."""
    return _seconds(frame.get(b"seconds"))


def _seconds(raw: bytes | None) -> float:
    try:
        value = float(raw or 0)
    except ValueError:
        return 0.0
    return value if 0.0 <= value <= FURTHEST else FURTHEST if isfinite(value) and value > 0.0 else 0.0


def callback(frame: Mapping[bytes, bytes]) -> str:
    """The field of the callback that is to begin; `middleware` if only hooks are."""
    key = frame.get(b"key", b"")
    return key.decode() if key in CALLBACKS else "middleware"


def suspects(job: Mapping[bytes, bytes]) -> int:
    """Jobs with which a suspect may share its process, itself included; 0 if it is none."""
    raw = job.get(b"suspect", b"")
    return int(raw) if raw.isdigit() and len(raw) < 4 else 0


def signaled(frame: Mapping[bytes, bytes]) -> float | None:
    """Seconds since a signal reached its process, if one did a moment before it failed."""
    try:
        ago = float(frame.get(b"signaled") or "nan")
    except ValueError:
        return None
    return ago if 0 <= ago <= 60 else None


def peak(frame: Mapping[bytes, bytes]) -> int:
    """Most bytes of memory its process held at a time, as that says; 0 if that is no number."""
    raw = frame.get(b"maxrss", b"")
    return int(raw) * 1024 if raw.isdigit() and len(raw) < 16 else 0
