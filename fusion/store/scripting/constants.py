"""The values of a fleet that every script knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from fusion import __version__
from fusion.kernel import defaults
from fusion.settings import Settings
from fusion.store.layout import schema


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConstants:
    """The values that all processes of a fleet share. Times in seconds; `events_cap`: entries that the event stream keeps; `*_max`: entries
    of a terminal set; `max_queue_length`, `queue_timeout`: of queues that have none of their own, 0 for none; `adopt_rq`: queues whose LIST
    of stock RQ's this process takes over; `schema`: the layout of the data that it knows.
    """

    prefix: str = defaults.KEY_PREFIX
    events_cap: int = defaults.EVENTS_CAP
    result_ttl: float = defaults.RESULT_TTL
    failure_ttl: float = defaults.FAILURE_TTL
    max_lost: int = defaults.MAX_LOST
    hold_timeout: float = defaults.HOLD_TIMEOUT
    failed_max: int = defaults.FAILED_MAX
    finished_max: int = defaults.FINISHED_MAX
    canceled_max: int = defaults.CANCELED_MAX
    callbacks_max: int = defaults.CALLBACKS_MAX
    max_queue_length: int = 0
    queue_timeout: float = 0
    adopt_rq: tuple[str, ...] = ()
    schema: int = schema.VERSION

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Take the values from the settings."""
        return cls(
            prefix=settings.prefix,
            events_cap=settings.events_cap,
            result_ttl=settings.result_ttl,
            failure_ttl=settings.failure_ttl,
            max_lost=settings.max_lost,
            hold_timeout=settings.hold_timeout,
            failed_max=settings.failed_max,
            finished_max=settings.finished_max,
            canceled_max=settings.canceled_max,
            max_queue_length=settings.max_queue_length or 0,
            queue_timeout=settings.queue_timeout or 0,
            adopt_rq=settings.adopt_rq or (),
        )

    def literals(self) -> dict[str, str]:
        """The names that built scripts leave open, each with its value as Lua source. HOLD_MS and QUEUE_TIMEOUT are in milliseconds; CAP is an
        argument of XADD; PROBATION: losses after which a job runs alone."""
        values: dict[str, str | int | tuple[str, ...]] = {
            "P": self.prefix,
            "CAP": str(self.events_cap),
            "RESULT_TTL": int(self.result_ttl),
            "FAILURE_TTL": int(self.failure_ttl),
            "MAX_LOST": self.max_lost,
            "PROBATION": min(defaults.PROBATION, self.max_lost),
            "HOLD_MS": int(self.hold_timeout * 1000),
            "MAX_LENGTH": self.max_queue_length,
            "QUEUE_TIMEOUT": int(self.queue_timeout * 1000),
            "ADOPT": self.adopt_rq,
            "FAILED_MAX": self.failed_max,
            "FINISHED_MAX": self.finished_max,
            "CANCELED_MAX": self.canceled_max,
            "CALLBACKS_MAX": self.callbacks_max,
            "SCHEMA": self.schema,
            "LEAST_READER": min(schema.MIN_READER, self.schema),
            "LEAST_WRITER": min(schema.MIN_WRITER, self.schema),
            "FUSION": __version__,
        }
        return {name: literal(value) for name, value in values.items()}


def literal(value: str | int | tuple[str, ...]) -> str:
    """The value as Lua source; a tuple becomes a list of values, such as a call takes."""
    if isinstance(value, tuple):
        return ", ".join(map(literal, value))
    if isinstance(value, int):
        return str(value)
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03d}" for b in value.encode()) + '"'
