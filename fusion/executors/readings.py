"""Reads numbers from a job's fields and from frames of its process. Both may be wrong: foreign producers write fields, tasks can write
frames."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from fusion.execution.callbacks import CALLBACKS
from fusion.kernel.defaults import FURTHEST


def priority(job: Mapping[bytes, bytes]) -> int:
    """Return a job's class; the lowest one if the field is no number."""
    raw = job.get(b"priority", b"")
    return int(raw) if raw.isdigit() and len(raw) < 10 else 0


def time_limit(job: Mapping[bytes, bytes], grace: float) -> float:
    """Return the seconds after which a job's processes are killed; inf for never. ValueError if its timeout is no number."""
    value = float(job[b"timeout"])
    if not isfinite(value):
        raise ValueError(f"timeout must be a number of seconds, got {value}")
    return min(value, FURTHEST) + grace if value > 0 else float("inf")


def elapsed(frame: Mapping[bytes, bytes]) -> float:
    """Return the seconds that the task ran, as its process reports; 0 if that is no time."""
    return _seconds(frame.get(b"elapsed"))


def standstill(frame: Mapping[bytes, bytes]) -> float:
    """Return the seconds for which an event loop was blocked, as its process reports; 0 if that is no time."""
    return _seconds(frame.get(b"seconds"))


def _seconds(raw: bytes | None) -> float:
    try:
        value = float(raw or 0)
    except ValueError:
        return 0.0
    return value if 0.0 <= value <= FURTHEST else FURTHEST if isfinite(value) and value > 0.0 else 0.0


def callback(frame: Mapping[bytes, bytes]) -> str:
    """Return the field of the callback that begins; `middleware` if only hooks begin."""
    key = frame.get(b"key", b"")
    return key.decode() if key in CALLBACKS else "middleware"


def suspects(job: Mapping[bytes, bytes]) -> int:
    """Return how many jobs may share a suspect's process, including itself; 0 if the job is no suspect."""
    raw = job.get(b"suspect", b"")
    return int(raw) if raw.isdigit() and len(raw) < 4 else 0


def signaled(frame: Mapping[bytes, bytes]) -> float | None:
    """Return the seconds since a signal reached its process, if one did just before it failed."""
    try:
        ago = float(frame.get(b"signaled") or "nan")
    except ValueError:
        return None
    return ago if 0 <= ago <= 60 else None


def peak(frame: Mapping[bytes, bytes]) -> int:
    """Return the most bytes of memory that its process held, as it reports; 0 if that is no number."""
    raw = frame.get(b"maxrss", b"")
    return int(raw) * 1024 if raw.isdigit() and len(raw) < 16 else 0
