"""The event stream, its sinks and relays as JSON shows them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fusion.kernel.timeutil import to_iso

if TYPE_CHECKING:
    from fusion.store.read.event_inspector import RelayInfo, SinkInfo, StreamInfo

#: Seconds without a word of a relay after which a sink counts as unserved: two of the longest leases.
_UNSERVED = 30.0


@dataclass(frozen=True)
class EventsSnapshot:
    """`configured`: the sinks in this command's own settings; `cap`: how many events they keep while there is no sink."""

    stream: StreamInfo
    sinks: tuple[SinkInfo, ...]
    relays: tuple[RelayInfo, ...]
    configured: tuple[str, ...]
    cap: int


def state_of(sink: SinkInfo) -> str:
    """`delivering`, `failing`, `open` (the breaker is open) or `unserved` (no relay speaks for it)."""
    if sink.served is None or sink.served > _UNSERVED:
        return "unserved"
    if sink.failing_since is not None:
        return "open" if sink.breaker_open else "failing"
    return "delivering"


def document(snapshot: EventsSnapshot) -> dict[str, Any]:
    """`events stats` as JSON shows it."""
    stream = snapshot.stream
    return {
        "schema": 1,
        "stream": {
            "length": stream.length,
            "cap": stream.cap or snapshot.cap,
            "epoch": stream.epoch,
            "last": stream.n,
            "first_at": _iso(stream.first),
        },
        "sinks": [
            {
                "name": sink.name,
                "state": state_of(sink),
                "behind": sink.behind,
                "oldest_seconds": round(sink.oldest, 3),
                "delivered": sink.delivered,
                "parked": sink.parked,
                "dropped": sink.dropped,
                "failing_since": _iso(sink.failing_since),
                "failures": sink.failures,
                "breaker_open": sink.breaker_open,
                "last_error": sink.error or None,
                "last_error_at": _iso(sink.error_at),
                "last_event": sink.last_event or None,
                "last_event_at": _iso(sink.last_event_at),
                "served_seconds_ago": None if sink.served is None else round(sink.served, 3),
            }
            for sink in snapshot.sinks
        ],
        "relays": [
            {
                "name": relay.name,
                "hostname": relay.hostname,
                "pid": relay.pid,
                "sinks": list(relay.sinks),
                "busy": relay.busy or None,
                "alive": relay.alive,
                "heartbeat_age": round(relay.silent, 3),
            }
            for relay in snapshot.relays
        ],
        "configured": list(snapshot.configured),
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else to_iso(moment)
