"""The event stream, its sinks and relays, as every interface shows them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from fusion.views.base import ABSENT, View, part, public, view

if TYPE_CHECKING:
    from typing import Self

    from fusion.store.read.event_inspector import RelayInfo, SinkInfo, StreamInfo

#: Seconds without a relay's heartbeat after which a sink counts as unserved: two of the longest leases.
_UNSERVED = 30.0
State = Literal["delivering", "failing", "open", "unserved"]


@dataclass(frozen=True)
class EventsSnapshot:
    """`configured`: the sinks in this command's own settings; `cap`: how many events the stream keeps while there is no sink."""

    stream: StreamInfo
    sinks: tuple[SinkInfo, ...]
    relays: tuple[RelayInfo, ...]
    configured: tuple[str, ...]
    cap: int


def sink_state(sink: SinkInfo) -> State:
    """Return the state of a sink; `open`: its breaker is open; `unserved`: no relay delivers to it."""
    if sink.served is None or sink.served > _UNSERVED:
        return "unserved"
    if sink.failing_since is not None:
        return "open" if sink.breaker_open else "failing"
    return "delivering"


@part
class StreamView(View):
    """The stream of events."""

    length: int = public("Events in it.")
    cap: int = public("How many it keeps at most.")
    epoch: str = public("The id of the stream; it changes after Redis lost its data.")
    last: int = public("The number of the last event.")
    first_at: datetime | None = public("When the oldest event happened.")


@part
class SinkView(View):
    """A sink of events."""

    name: str = public("Its name.", column="SINK")
    state: State = public("`open`: its breaker is open; `unserved`: no relay delivers to it.", column="STATE")
    behind: int = public("Events that it has not received yet.", column="BEHIND")
    oldest_seconds: float = public("How long ago the first of these happened.", unit="seconds", column="OLDEST")
    delivered: int = public("Events that it received.", column="DELIVERED")
    parked: int = public("Events that it refused for good.", column="PARKED")
    dropped: int = public("Events that it will never receive.", column="DROPPED")
    failing_since: datetime | None = public("Since when deliveries to it fail.")
    failures: int = public("Deliveries that failed in a row.")
    breaker_open: bool = public("Whether deliveries to it pause after errors.")
    last_error: str | None = public("The message of the last error.")
    last_error_at: datetime | None = public("When the last error happened.")
    last_event: str | None = public("The last event that it received.")
    last_event_at: datetime | None = public("When that event happened.")
    served_seconds_ago: float | None = public("When a relay last served it.", unit="seconds")

    @classmethod
    def of(cls, sink: SinkInfo) -> Self:
        """Make the view of a sink."""
        return cls(
            name=sink.name,
            state=sink_state(sink),
            behind=sink.behind,
            oldest_seconds=round(sink.oldest, 3),
            delivered=sink.delivered,
            parked=sink.parked,
            dropped=sink.dropped,
            failing_since=sink.failing_since,
            failures=sink.failures,
            breaker_open=sink.breaker_open,
            last_error=sink.error or None,
            last_error_at=sink.error_at,
            last_event=sink.last_event or None,
            last_event_at=sink.last_event_at,
            served_seconds_ago=None if sink.served is None else round(sink.served, 3),
        )


@part
class RelayView(View):
    """A relay."""

    name: str = public("Its name.")
    hostname: str = public("The host that it runs on.")
    pid: int = public("Its process id.")
    sinks: list[str] = public("The sinks that it delivers to.")
    busy: str | None = public("The sink that it waits for.")
    alive: bool = public("Whether its heartbeat is younger than its lease.")
    heartbeat_age: float = public("How long ago it last wrote that it lives.", unit="seconds")

    @classmethod
    def of(cls, relay: RelayInfo) -> Self:
        """Make the view of a relay."""
        return cls(
            name=relay.name,
            hostname=relay.hostname,
            pid=relay.pid,
            sinks=list(relay.sinks),
            busy=relay.busy or None,
            alive=relay.alive,
            heartbeat_age=round(relay.silent, 3),
        )


@view
class SinksView(View):
    """The stream of events, its sinks and relays."""

    stream: StreamView = public("The stream.")
    sinks: list[SinkView] = public("Sinks that a relay has served at any time.")
    relays: list[RelayView] = public("Relays that are registered.")
    configured: list[str] = public("Sinks in the caller's own settings.", default=ABSENT)

    @classmethod
    def of(cls, found: EventsSnapshot, *, configured: bool = False) -> Self:
        """Make the view. `configured`: with the sinks in this command's own settings."""
        stream = found.stream
        return cls(
            stream=StreamView(
                length=stream.length, cap=stream.cap or found.cap, epoch=stream.epoch, last=stream.n, first_at=stream.first
            ),
            sinks=[SinkView.of(one) for one in found.sinks],
            relays=[RelayView.of(one) for one in found.relays],
            configured=list(found.configured) if configured else ABSENT,
        )
