"""Python callbacks of a job: what runs in the job's process after the task ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fusion.importing import func_name_of
from fusion.timeutil import parse_seconds


class Callback:
    """A function to call when a job succeeded or failed, under its own timeout in seconds (60 if None).

    On success it is called as `func(job, None, result)`, on failure as `func(job, None, type, value, traceback)`; the second argument is
    RQ's connection, which a job process does not have. A callback that raises is reported and never changes the job's outcome.
    """

    def __init__(self, func: str | Callable[..., Any], timeout: float | str | None = None) -> None:
        self.name = func_name_of(func)
        self.timeout = parse_seconds(timeout) if timeout is not None else 60.0

    def to_json(self) -> str:
        return json.dumps({"func": self.name, "timeout": self.timeout})


def as_callback(value: Callback | str | Callable[..., Any] | None) -> str | None:
    """The stored form of whatever `on_success=` and `on_failure=` accept."""
    if value is None:
        return None
    return (value if isinstance(value, Callback) else Callback(value)).to_json()
