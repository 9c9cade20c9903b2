"""The outcomes of a job's earlier executions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fusion.kernel.timeutil import from_iso

#: Larger numbers are not written by Fusion; JSON may even hold an infinite one.
_MOST = 2**53


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution that ended, but did not finish its job.

    `outcome`: `failed`, `retry` (failed and tried again), `lost` (its worker or process vanished), `released` (its worker gave it back),
    `canceled`, `stopped`, or `finished` (of a job of RQ's that is repeated). `error` is one line. `signal` or `exit_code`: those of its
    process, if it died; `maxrss`: its peak memory in KiB, if known; `oom_likely`: killed by SIGKILL from outside, as the kernel does when
    memory is short.
    """

    start: datetime | None
    end: datetime | None
    worker: str
    outcome: str
    error: str
    signal: int | None = None
    exit_code: int | None = None
    maxrss: int | None = None
    oom_likely: bool = False


def parse_history(raw: bytes | str | None) -> list[Attempt]:
    """Return the attempts in the field `history`, oldest first. Lines that can't be read are left out."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw or ""
    return [attempt for line in text.split("\n") if line and (attempt := _attempt(line))]


def _attempt(line: str) -> Attempt | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return Attempt(
        start=from_iso(_text(found, "start")),
        end=from_iso(_text(found, "end")),
        worker=_text(found, "worker"),
        outcome=_text(found, "outcome"),
        error=_text(found, "error"),
        signal=_whole(found, "signal"),
        exit_code=_whole(found, "exit_code"),
        maxrss=_whole(found, "maxrss"),
        oom_likely=found.get("oom") is True,
    )


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""


def _whole(found: dict[str, Any], name: str) -> int | None:
    value = found.get(name)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and -_MOST < value < _MOST else None
