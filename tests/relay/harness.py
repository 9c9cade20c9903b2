"""Events to deliver, and what sinks got of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from fusion.store.read.event_inspector import EventInspector, SinkInfo
from fusion.store.write.broker import Broker
from tests.kit.hands import new


def ids_in(path: Path) -> list[str]:
    """Ids of the events in a file of JSON lines, repetitions included."""
    return [str(found["id"]) for found in documents_in(path)]


def documents_in(path: Path) -> Iterator[dict[str, object]]:
    """Whole lines only: a writer may be at it."""
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if line.endswith("\n"):
            yield json.loads(line)


def emit(broker: Broker, count: int, prefix: str = "j") -> None:
    """This many events: jobs that wait."""
    for first in range(0, count, 500):
        broker.enqueue("q", [new(f"{prefix}{i}") for i in range(first, min(first + 500, count))], f"{prefix}{first}")


def sink_of(inspector: EventInspector, name: str = "file") -> SinkInfo | None:
    return next((sink for sink in inspector.sinks() if sink.name == name), None)


def is_delivered(inspector: EventInspector, name: str = "file") -> bool:
    """Whether the sink has all there is."""
    sink, stream = sink_of(inspector, name), inspector.stream()
    return sink is not None and sink.behind == 0 and sink.delivered + sink.parked + sink.dropped >= stream.n
