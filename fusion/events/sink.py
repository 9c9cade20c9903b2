"""What a sink is: a place that events are delivered to, in batches, each at least once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fusion.events.event import JobEvent
from fusion.exceptions import FusionError


class SinkUnavailable(FusionError):
    """Some or all of a batch was not delivered, and may be later. `retry_after` in seconds, None if the sink did not say."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Rejected:
    """An event that the sink will never take, and why: it is parked, and its fellows go on."""

    event: JobEvent
    why: str


class Sink(Protocol):
    """`write` delivers or raises SinkUnavailable (then the whole batch comes again: it must be safe to repeat), and returns what was refused
    for good. It may block up to its own timeout; each sink has a thread of its own. `all_events`: also those that are no STATUSES."""

    name: str
    all_events: bool

    def write(self, events: Sequence[JobEvent]) -> Sequence[Rejected]: ...

    def close(self) -> None: ...
