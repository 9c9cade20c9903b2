"""Concurrency keys as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusion.kernel.rates import Rate


@dataclass(frozen=True, slots=True)
class Limit:
    """The bounds of a concurrency key. `max_concurrent`: jobs that may run at once, None for any number; `rate`: how many may start in a time.

    `pinned`, `rate_pinned`: a person set it; else it is what the last enqueue said. `paused_until`: Unix seconds, infinite for no end, 0 if it
    is not paused. `held_back_until`: a task holds it back until then (`rate_limited`), Unix seconds, 0 if none does. What ended by itself counts
    as none only for who looks at the clock.
    """

    key: str
    max_concurrent: int | None = 1
    pinned: bool = False
    rate: Rate | None = None
    rate_pinned: bool = False
    paused_until: float = 0.0
    paused_since: str = ""
    paused_by: str = ""
    paused_why: str = ""
    held_back_until: float = 0.0


def read_limit(key: str, fields: Mapping[str, str]) -> Limit:
    """Read the hash of a key; what is damaged counts as absent."""
    rate = Rate.of_stored(fields.get("pinned_rate") or fields.get("rate", ""))
    number = fields.get("pinned") or fields.get("max") or ""
    limit = int(number) if number.isdecimal() and len(number) < 10 else None if rate else 1
    return Limit(
        key,
        limit,
        "pinned" in fields,
        rate,
        "pinned_rate" in fields,
        _seconds(fields.get("paused", "")),
        fields.get("paused_since", ""),
        fields.get("paused_by", ""),
        fields.get("paused_why", ""),
        _seconds(fields.get("held_back", "")),
    )


def _seconds(until: str) -> float:
    if until == "inf":
        return float(until)
    return int(until) / 1000 if until.isdecimal() and len(until) < 17 else 0.0
