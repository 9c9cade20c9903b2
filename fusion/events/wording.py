"""The one line that an event says to a person. docs/events.md is the table of the events and their fields."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite


def message_of(fields: Mapping[str, str]) -> str:
    """The line for an entry of the stream: its own `message`, which `Log` writes, else one made of its fields."""
    if told := fields.get("message"):
        return told
    raised = fields.get("callback_error")
    return _of_the_event(fields) + (f"; its callback raised {raised}" if raised else "")


def _of_the_event(fields: Mapping[str, str]) -> str:
    event, reason = fields.get("event", ""), fields.get("reason", "")
    if event == "queued":
        return f"queued to {fields.get('queue', '')}" + (f" ({reason})" if reason else "")
    if event == "scheduled":
        return f"scheduled for {fields.get('due', '')}" + (f" ({reason})" if reason else "")
    if event == "processing":
        return f"processing by {fields.get('worker', '')}"
    if event == "completed":
        elapsed = seconds_of(fields, "elapsed_us", 1e6)
        return "completed" if elapsed is None else f"completed in {elapsed:.3f} s"
    if event == "retry":
        delay = seconds_of(fields, "delay_ms", 1e3)
        return f"retry{'' if delay is None else f' in {delay:.0f} s'}: {reason}"
    return f"{event}: {reason}" if reason else event


def seconds_of(fields: Mapping[str, str], name: str, per_second: float) -> float | None:
    """A duration in seconds; None if the field is absent or unreadable. `per_second`: units of the field in a second."""
    try:
        value = float(fields[name]) / per_second
    except (KeyError, ValueError):
        return None
    return value if isfinite(value) else None


def whole_of(fields: Mapping[str, str], name: str) -> int | None:
    """A whole number; None if the field is absent or unreadable."""
    try:
        return int(fields[name])
    except (KeyError, ValueError):
        return None
