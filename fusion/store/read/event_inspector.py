"""Reads the event stream for people and tools. Nothing here takes an event away from a sink."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from fusion.kernel.timeutil import from_iso
from fusion.store.layout import codec
from fusion.store.read.base import InspectorBase, moment, texts
from fusion.store.write.event_broker import StreamEntry, sink_groups, to_entry

_PAGE = 500


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """`cap`: about how many events are kept now; None = what each process is configured for, since no sink needs more. `first`: when the
    oldest event that is left happened."""

    length: int
    cap: int | None
    epoch: str
    n: int
    first: datetime | None


@dataclass(frozen=True, slots=True)
class SinkInfo:
    """The state of a sink. `behind`: events that it has not received yet; `oldest`: seconds since the first of these happened.

    `dropped`: events that it will never receive, as the cap was reached. `served`: seconds since a relay last reported for it, None if none
    ever did.
    """

    name: str
    behind: int
    oldest: float
    delivered: int
    parked: int
    dropped: int
    failing_since: datetime | None
    failures: int
    breaker_open: bool
    error: str
    error_at: datetime | None
    last_event: str
    last_event_at: datetime | None
    served: float | None


@dataclass(frozen=True, slots=True)
class RelayInfo:
    """A relay as its hash describes it; `alive` by its heartbeat against the server's clock, `silent` seconds since then. `busy`: sinks that
    have not answered for a while."""

    name: str
    hostname: str
    pid: int
    sinks: tuple[str, ...]
    busy: str
    birth: datetime | None
    alive: bool
    silent: float


class Parked(NamedTuple):
    """An event that a sink refused for good. `entry` is its id in the sink's stream of refused events, `document` the event as JSON."""

    entry: str
    at: datetime
    why: str
    document: str


class EventInspector(InspectorBase):
    """Reads the event stream, its sinks and relays. Nothing here takes an event away from a sink."""

    def stream(self) -> StreamInfo:
        """Read the stream's length, bounds and numbering."""
        (seconds, _micros), length, (epoch, n, cap, until), first = self._batch(
            lambda pipe: (
                pipe.time(),
                pipe.xlen(self.keys.events),
                pipe.hmget(self.keys.events_meta, ["epoch", "n", "cap", "cap_until"]),
                pipe.xrange(self.keys.events, count=1),
            )
        )
        asked = codec.number(cap) if cap and codec.number(until) > seconds else None
        at = moment_of(codec.text(first[0][0])) if first else None
        return StreamInfo(length, asked, codec.text(epoch), codec.number(n), at)

    # -- sinks

    def sinks(self) -> list[SinkInfo]:
        """Read all sinks that were ever served and not forgotten, by name."""
        return sorted((self._sink(group) for group in sink_groups(self.connection, self.keys)), key=lambda sink: sink.name)

    def sink_names(self) -> list[str]:
        """List the names of these sinks, sorted."""
        return sorted(codec.text(group["name"]) for group in sink_groups(self.connection, self.keys))

    def _sink(self, group: dict[str, Any]) -> SinkInfo:
        """Read one sink in one batch, so that the figures are consistent: a few hundred bytes arrive, and are executed, together. A
        transaction would do the same, but ACL users would need MULTI for this alone."""
        name = codec.text(group["name"])
        (seconds, micros), raw, parked, (epoch, n), length, first, pending, groups = self._batch(
            lambda pipe: (
                pipe.time(),
                pipe.hgetall(self.keys.sink(name)),
                pipe.xlen(self.keys.parked(name)),
                pipe.hmget(self.keys.events_meta, ["epoch", "n"]),
                pipe.xlen(self.keys.events),
                pipe.xrange(self.keys.events, count=1),
                pipe.xpending(self.keys.events, name),
                pipe.xinfo_groups(self.keys.events),
            )
        )
        state = texts(raw)
        now_ms = seconds * 1000 + micros // 1000
        last = next((codec.text(g["last-delivered-id"]) for g in groups if codec.text(g["name"]) == name), "0-0")
        unread, lost = _unread(state, codec.text(epoch), codec.number(n), length, to_entry(_flat(first[0])) if first else None)
        held, next_ = int(pending["pending"]), self._after(last)
        oldest = codec.text(pending["min"]) if held else next_
        at_ms, served = codec.number(state.get("at_ms")), codec.number(state.get("served_ms"))
        return SinkInfo(
            name,
            (unread if next_ else 0) + held,
            max(0.0, (now_ms - _ms(oldest)) / 1000) if oldest else 0.0,
            codec.number(state.get("delivered")),
            parked,
            codec.number(state.get("dropped")) + lost,
            from_iso(state.get("failing_since")),
            codec.number(state.get("failures")),
            state.get("breaker") == "open",
            state.get("error", ""),
            from_iso(state.get("error_at")),
            f"{state['epoch']}-{state['n']}" if "n" in state else "",
            moment(at_ms / 1000) if at_ms else None,
            max(0.0, (now_ms - served) / 1000) if served else None,
        )

    def _after(self, last: str) -> str:
        found: Any = self.connection.xrange(self.keys.events, min=f"({last}", count=1)
        return codec.text(found[0][0]) if found else ""

    # -- relays

    def relays(self) -> list[RelayInfo]:
        """Read the registered relays, including those that died in the last minutes."""
        names = self._page(self.keys.relays)
        now_ms, rows = self._clock_and_hashes(map(self.keys.relay, names))
        return [_relay(name, row, now_ms) for name, row in zip(names, rows, strict=True) if row]

    # -- entries

    def last_entry(self) -> str:
        """Read the id of the newest entry; empty if there is none."""
        newest: Any = self.connection.xrevrange(self.keys.events, count=1)
        return codec.text(newest[0][0]) if newest else ""

    def tail(
        self, count: int, job_id: str = "", upto: str = "+", progress: Callable[[int], None] | None = None
    ) -> list[StreamEntry]:
        """Read the newest events up to an entry, the oldest of them first; with `job_id` those of one job, however far back. `progress` is
        called after each part with the number of events read."""
        found: deque[StreamEntry] = deque()
        before = upto
        while len(found) < count:
            rows: Any = self.connection.xrevrange(self.keys.events, max=before, count=_PAGE)
            page = [to_entry(_flat(row)) for row in rows]
            found.extendleft(
                [entry for entry in page if not job_id or entry.fields.get("job_id") == job_id][: count - len(found)]
            )
            if progress:
                progress(len(page))
            if len(page) < _PAGE:
                break
            before = f"({page[-1].id}"
        return list(found)

    def follow(self, after: str, block: float, job_id: str = "") -> Iterator[StreamEntry]:
        """Yield the entries that come after one, for ever. `block`, in seconds, must be less than the connection's own limit."""
        while True:
            answer: Any = self.connection.xread({self.keys.events: after}, count=_PAGE, block=int(block * 1000))
            # redis-py returns a list of streams, or over RESP3 a dict of lists of streams
            pages = [page for (page,) in answer.values()] if isinstance(answer, dict) else [page for _, page in answer or ()]
            for row in chain.from_iterable(pages):
                entry = to_entry(_flat(row))
                after = entry.id
                if not job_id or entry.fields.get("job_id") == job_id:
                    yield entry

    def parked_count(self, sink: str) -> int:
        """Count the events that a sink refused for good."""
        return int(self.connection.xlen(self.keys.parked(sink)))

    def parked(self, sink: str, limit: int, after: str = "0-0") -> list[Parked]:
        """Read the events that a sink refused for good, the oldest first."""
        rows: Any = self.connection.xrange(self.keys.parked(sink), min=f"({after}", count=limit)
        entries = (to_entry(_flat(row)) for row in rows)
        return [Parked(id_, moment_of(id_), fields.get("why", ""), fields.get("document", "")) for id_, fields in entries]


def moment_of(entry: str) -> datetime:
    """Return when an entry was written, by the server's clock, from its id."""
    return moment(_ms(entry) / 1000)


def _relay(name: str, fields: dict[str, str], now_ms: float) -> RelayInfo:
    silent = (now_ms - codec.number(fields.get("beat_ms"))) / 1000
    return RelayInfo(
        name,
        fields.get("hostname", ""),
        codec.number(fields.get("pid")),
        tuple(filter(None, fields.get("sinks", "").split(","))),
        fields.get("busy", ""),
        from_iso(fields.get("birth")),
        silent * 1000 <= codec.number(fields.get("lease_ms")),
        max(0.0, silent),
    )


def _ms(entry: str) -> int:
    return int(entry.partition("-")[0])


def _flat(row: Any) -> tuple[Any, list[Any]]:
    """Flatten an entry's fields: redis-py makes a dict of them, and `to_entry` takes what Redis sends."""
    return row[0], [part for pair in row[1].items() for part in pair]


def _unread(state: dict[str, str], epoch: str, n: int, length: int, first: StreamEntry | None) -> tuple[int, int]:
    """Count the events that no reader has received yet, and those of them that are gone without having been counted."""
    begins = codec.number(first.fields.get("n"), n + 1) if first and first.fields.get("epoch") == epoch else None
    if first is None:
        begins = n + 1
    if begins is None:  # numbering began anew, so the stream holds events of both numberings: at most all of it
        return length, 0
    if state.get("read_epoch") != epoch:
        return n - begins + 1, 0
    read = codec.number(state.get("read_n"))
    return n - max(read, begins - 1), max(0, begins - 1 - read)
