"""From what a horse said to what is committed. Both halves may be nonsense: foreign producers write job fields, tasks can write frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite

from fusion.defaults import FURTHEST
from fusion.execution.completion import Decision, decide, died

_KINDS = (b"finished", b"failed", b"held")
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, LookupError, RecursionError)


def of_frame(job: Mapping[bytes, bytes], frame: Mapping[bytes, bytes]) -> Decision:
    """What an outcome frame means."""
    if frame.get(b"kind") not in _KINDS:
        return guarded(lambda: died(job, "its process sent something that is no outcome"))
    return guarded(lambda: decide(job, frame), frame.get(b"exc_info", b""))


def guarded(judge: Callable[[], Decision], exc_info: bytes = b"") -> Decision:
    """What `judge` says; if the job's fields can't be read, say its retry policy, a failure that tells so."""
    try:
        return judge()
    except _UNREADABLE as error:
        why = f"corrupt: a field of the job can't be read: {type(error).__name__}: {error}"
        told = exc_info + b"\n" + why.encode("utf-8", "replace") if exc_info else why
        shown = f"corrupt: a field of the job can't be read: {type(error).__name__}"
        return Decision("failed", why, fields={"exc_info": told, "reason": why}, shown=shown)


def elapsed(frame: Mapping[bytes, bytes]) -> float:
    """Seconds the task ran, as its process says; 0 if that is no time."""
    try:
        value = float(frame.get(b"elapsed") or 0)
    except ValueError:
        return 0.0
    return min(max(value, 0.0), FURTHEST) if isfinite(value) else 0.0


def signaled(frame: Mapping[bytes, bytes]) -> float | None:
    """Seconds since a signal reached its process, if one did a moment before it failed."""
    try:
        ago = float(frame.get(b"signaled") or "nan")
    except ValueError:
        return None
    return ago if 0 <= ago <= 60 else None


def struck(decision: Decision) -> Decision:
    """In place of a failure amid a stop of the whole tree. It counts as lost, so that one which stops its worker itself ends some day."""
    return Decision("struck", f"it failed as its processes were signaled with its worker: {decision.shown}")


def priority(job: Mapping[bytes, bytes]) -> int:
    """A job's class; the lowest one if that is no number."""
    raw = job.get(b"priority", b"")
    return int(raw) if raw.isdigit() and len(raw) < 10 else 0


def peak(frame: Mapping[bytes, bytes]) -> int:
    """Most bytes of memory its process held at a time, as that says; 0 if that is no number."""
    raw = frame.get(b"maxrss", b"")
    return int(raw) * 1024 if raw.isdigit() and len(raw) < 16 else 0


def time_limit(job: Mapping[bytes, bytes], grace: float) -> float:
    """Seconds after which a job's processes are killed; inf for never. ValueError if its timeout is no number."""
    value = float(job[b"timeout"])
    if not isfinite(value):
        raise ValueError(f"timeout {value} is no number of seconds")
    return min(value, FURTHEST) + grace if value > 0 else float("inf")


def no_time_limit(error: ValueError) -> Decision:
    """What becomes of a job whose timeout is none."""
    why = f"corrupt: {error}"
    return Decision("failed", why, fields={"exc_info": why, "reason": why}, shown="corrupt: its timeout is no number of seconds")
