"""Real relays for a test: by the command line, or with a sink that behaves as told."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

from fusion.store.read.event_inspector import EventInspector, SinkInfo
from fusion.store.write.broker import Broker
from tests.store.hands import new
from tests.support import eventually
from tests.worker.harness import WorkerProcess

COMMAND = ("run_worker.py", "relay")
#: A relay with the sinks of `tests/relay/driver.py`.
DRIVER = ("-m", "tests.relay.driver")
#: Short enough for a test to see what happens after it.
LEASE = "0.5"


class Relays:
    """Starts relays on one Redis and ends them with the test."""

    def __init__(self, redis_url: str, directory: Path) -> None:
        self.redis_url, self._directory = redis_url, directory
        self._started: list[WorkerProcess] = []

    def start(
        self, *args: str, program: tuple[str, ...] = COMMAND, env: dict[str, str] | None = None, ready: bool = True
    ) -> WorkerProcess:
        log = self._directory / f"relay{len(self._started)}.log"
        relay = WorkerProcess(self.redis_url, log, *args, env={"FUSION_LEASE": LEASE, **(env or {})}, program=program)
        self._started.append(relay)
        if ready:
            eventually(lambda: " to " in relay.output or relay.process.poll() is not None, 15, why="relay ready")
            assert relay.process.poll() is None, relay.output
        return relay

    def stop(self) -> None:
        for relay in self._started:
            relay.stop()


def ids_in(path: Path) -> list[str]:
    """Ids of the events in a file of JSON lines, repetitions included."""
    return [str(found["id"]) for found in documents_in(path)]


def documents_in(path: Path) -> Iterator[dict[str, object]]:
    """Whole lines only: a writer may be at it."""
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if line.endswith("\n"):
            yield json.loads(line)


def emit(broker: Broker, count: int, prefix: str = "j") -> None:
    """So many events: jobs that wait."""
    for first in range(0, count, 500):
        broker.enqueue("q", [new(f"{prefix}{i}") for i in range(first, min(first + 500, count))], f"{prefix}{first}")


def sink_of(inspector: EventInspector, name: str = "file") -> SinkInfo | None:
    return next((sink for sink in inspector.sinks() if sink.name == name), None)


def is_delivered(inspector: EventInspector, name: str = "file") -> bool:
    """Whether the sink has all there is."""
    sink, stream = sink_of(inspector, name), inspector.stream()
    return sink is not None and sink.behind == 0 and sink.delivered + sink.parked + sink.dropped >= stream.n


def kill(relay: WorkerProcess) -> None:
    relay.signal(signal.SIGKILL)
    relay.process.wait(10)
