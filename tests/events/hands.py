"""What the tests of the event stream share: events without jobs, a relay's hands, and what a sink gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import redis

from fusion.events.event import JobEvent
from fusion.kernel.timeutil import EPOCH
from fusion.store.read.event_inspector import EventInspector, SinkInfo
from fusion.store.stream.reader import EventReader, SinkEvent
from fusion.store.write.event_broker import EventBroker, Mark
from tests.kit.hands import now_ms

LEASE = 15.0
BACKLOG = 1_000_000


def event(n: int = 1, **more: object) -> JobEvent:
    """An event that no Redis has seen."""
    return JobEvent(id=f"1-{n}", event="completed", job_id=f"j{n}", queue="q", at=EPOCH, **more)  # type: ignore[arg-type]


def beat(
    events: EventBroker, name: str = "r", *sinks: str, incarnation: str = "", backlog: int = BACKLOG, lease: float = LEASE
) -> bool:
    """A relay's sign of life."""
    fields = {"pid": 7, "hostname": "h", "fusion": "1", "sinks": ",".join(sinks), "busy": ""}
    return events.relay_beat(name, incarnation or f"of {name}", lease, 420, sinks or ("s",), backlog, fields)


def silence(conn: redis.Redis, name: str, seconds: float) -> None:
    """As if the relay had said nothing for this long."""
    at = now_ms(conn) - int(seconds * 1000)
    conn.hset(f"rq:relay:{name}", "beat_ms", at)
    conn.zadd("rq:relays", {name: at})


def reader(events: EventBroker, relay: str = "r", sink: str = "s", payload: str = "masked") -> EventReader:
    """One that lives."""
    beat(events, relay, sink)
    return EventReader(events, sink, lambda: relay, payload)


def numbers(deliveries: Iterable[SinkEvent]) -> list[int]:
    return [int(delivery.event.id.rpartition("-")[2]) for delivery in deliveries]


def ack(found: EventReader, deliveries: Sequence[SinkEvent], refused: dict[str, str] | None = None) -> tuple[int, int]:
    return found.ack(deliveries, refused or {})


def drain(found: EventReader, count: int = 500) -> list[int]:
    """Read and acknowledge all there is."""
    got: list[int] = []
    while deliveries := found.read(count, 0):
        ack(found, deliveries)
        got += numbers(deliveries)
    return got


def sink_of(conn: redis.Redis, name: str = "s") -> SinkInfo:
    (found,) = [sink for sink in EventInspector(conn).sinks() if sink.name == name]
    return found


def event_scenario(conn: redis.Redis) -> dict[str, Callable[[], Any]]:
    """Each method of the EventBroker, with something to do. A read is repeated as the reader does it: first what was handed out."""
    events = EventBroker(conn)
    pipe = conn.pipeline(transaction=False)
    for n in range(250):  # Redis drops a hundred at a time
        pipe.xadd("rq:events", {"event": "queued", "job_id": "j", "queue": "q", "log_tag": "", "epoch": "e", "n": n})
    pipe.execute()
    for relay in ("lives", "leaves"):
        beat(events, relay, "held")
    rows, _ = events.events_read("held", "lives", 4)
    conn.hset("rq:sink:held", "served_ms", 1)
    for _ in range(2):
        ids = [row.id for row in events.events_read("done", "lives", 500)[0]]
        events.events_ack("done", ids, [], Mark("e", "1", 1))
    refused = [(rows[3].id, "why", "{}")]

    def once(answer: object) -> None:
        """What counts what it did says less the second time."""

    return {
        "events_read": lambda: events.events_read("new", "lives", 3, own=True),
        "events_ack": lambda: once(events.events_ack("held", [row.id for row in rows[:3]], refused, Mark("e", "3", 1))),
        "events_trim": lambda: once(events.events_trim(5)),
        "relay_beat": lambda: beat(events, "new", "held"),
        "relay_leave": lambda: once(events.relay_leave("leaves", "of leaves")),
    }
