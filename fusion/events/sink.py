"""The protocol of sinks: a sink takes events in batches, each event at least once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fusion.events.event import JobEvent
from fusion.exceptions import FusionError


class SinkUnavailable(FusionError):
    """The sink did not take all of a batch, and may later. `retry_after`: seconds that it asked for, None if it did not say."""

    code = "FUS-134"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Rejected:
    """An event that the sink refused for good, and why. The relay parks it; the rest of the batch is delivered."""

    event: JobEvent
    why: str


class Sink(Protocol):
    """A place that events go to. Each sink has a thread of its own, so it may block, up to its own timeout.

    `name`: of its consumer group in Redis. `all_events`: it takes all events; else only `STATUSES`.
    """

    name: str
    all_events: bool

    def write(self, events: Sequence[JobEvent]) -> Sequence[Rejected]:
        """Deliver a batch and return the events refused for good. SinkUnavailable: the whole batch comes again, so repeating must be safe."""
        ...

    def close(self) -> None:
        """Let go of files and connections. No call of `write` follows."""
        ...
