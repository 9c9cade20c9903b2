"""The event stream as one sink of one relay reads it: in order, each event until it was acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fusion.events.document import to_line
from fusion.events.event import JobEvent
from fusion.kernel.timeutil import now, to_iso
from fusion.store.client.adapter import batch
from fusion.store.stream.details import Details
from fusion.store.write.event_broker import EventBroker, Mark, StreamEntry

#: Seconds between two looks for what dead relays left.
_LOOK = 2.0
#: Entries that one call hands out: about 10 ms of the server's one thread.
_PER_CALL = 150


class SinkEvent(NamedTuple):
    """An event, and the entry of the stream that it came from."""

    entry: str
    event: JobEvent


class EventReader:
    """Reads the stream for one sink of one relay. Relays of one sink share their place in Redis; each entry goes to one of them.

    - at first, and whenever a reply was lost, comes what this relay was given already; from time to time what dead relays left;
    - `relay` tells the name under which this relay is registered: while that lives, what it holds is nobody else's;
    - redis-py's errors come as they are, and each method may be called again.
    """

    def __init__(self, broker: EventBroker, sink: str, relay: Callable[[], str], payload: str) -> None:
        self._broker, self._sink, self._relay = broker, sink, relay
        self._details = Details(broker.connection, broker.keys, payload)
        self._own = True
        self._look_at = 0.0

    def read(self, count: int, block: float) -> list[SinkEvent]:
        """Read up to `count` events; none if there are none within `block` seconds, which must be less than the connection's own limit."""
        try:
            deliveries, last = self._read(count)
            if not deliveries and block > 0:
                self._wait(last, block)
                deliveries, _ = self._read(count)
        except Exception:
            self._own = True  # they may have been given to us all the same
            raise
        return deliveries

    def _read(self, count: int) -> tuple[list[SinkEvent], str]:
        instant = time.monotonic()
        dead = instant >= self._look_at
        entries = list[StreamEntry]()
        while True:
            most = min(count - len(entries), _PER_CALL)
            more, last = self._broker.events_read(self._sink, self._relay(), most, own=self._own, dead=dead)
            entries += more
            if self._own or len(more) < most or len(entries) == count:  # its own come again until they are acknowledged
                break
        if dead and len(more) < most:  # a full batch: there may be more of them
            self._look_at = instant + _LOOK
        events = self._details.events(entries) if entries else []
        if not entries:
            self._own = False
        return [SinkEvent(entry.id, event) for entry, event in zip(entries, events, strict=True)], last

    def _wait(self, last: str, block: float) -> None:
        self._broker.connection.xread({self._broker.keys.events: last}, count=1, block=int(block * 1000))

    def ack(self, deliveries: Sequence[SinkEvent], refused: Mapping[str, str]) -> tuple[int, int]:
        """Note that the sink has them, but for those `refused` for good (event id -> why), which are parked; returns how many of both are news."""
        newest = deliveries[-1]
        epoch, _, n = newest.event.id.rpartition("-")
        parked = [(entry, refused[event.id], to_line(event)) for entry, event in deliveries if event.id in refused]
        taken = [entry for entry, event in deliveries if event.id not in refused]
        return self._broker.events_ack(self._sink, taken, parked, Mark(epoch, n, int(newest.entry.partition("-")[0])))

    def failing(self, error: str, failures: int, *, open_: bool) -> None:
        """Have it shown that the sink fails, how often in a row, and whether the breaker is open; the next `ack` takes that back."""
        key, at = self._broker.keys.sink(self._sink), to_iso(now())
        state = {"error": error, "error_at": at, "failures": failures, "breaker": "open" if open_ else "closed"}
        batch(self._broker.connection, lambda pipe: (pipe.hsetnx(key, "failing_since", at), pipe.hset(key, mapping=state)))
