"""Generations of executors whose fork servers are played by the test."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fusion.executors import generations as module
from fusion.executors.base import Death, Run
from fusion.executors.generations import ExecutorGenerations
from fusion.runtime.loop import Loop
from fusion.settings import Settings
from tests.executors.rig import claimed
from tests.kit.fake_fork_server import FakeConcurrentForkServer, FakeForkServer, FakeWarmForkServer, settle


class Listener:
    """Notes the calls that it gets."""

    def __init__(self) -> None:
        self.frames: list[tuple[Run, bytes]] = []
        self.ends: list[tuple[Run, Death]] = []
        self.back: list[tuple[Run, str]] = []
        self.told: list[Run] = []
        self.rooms = 0

    def frame(self, run: Run, frame: dict[bytes, bytes]) -> None:
        self.frames.append((run, frame[b"kind"]))

    def ended(self, run: Run, death: Death) -> None:
        self.ends.append((run, death))

    def returned(self, run: Run, why: str) -> None:
        self.back.append((run, why))

    def begun(self, run: Run) -> None:
        self.told.append(run)

    def capacity_changed(self) -> None:
        self.rooms += 1


class Stage:
    """Generations whose fork servers are played. `now`: the time that its ticks are given, apart from the clock's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, warm: bool = False, executor: str = "", **settings: Any) -> None:
        self.servers: list[Any] = []
        name, kind = ("WarmForkServerClient", FakeWarmForkServer) if warm else ("ForkServerClient", FakeForkServer)
        size: dict[str, Any] = {"slots": 2, "horses": 2 if warm else None}
        if executor:
            name, kind, size = "ConcurrentForkServerClient", FakeConcurrentForkServer, {"executor": executor}

        def make(config: Any) -> Any:
            self.servers.append(kind(config))
            return self.servers[-1]

        monkeypatch.setattr(module, name, make)
        self.loop, self.listener, self.warm = Loop(), Listener(), warm
        self.executor = ExecutorGenerations(Settings(**{**size, **settings}), self.loop, logging.getLogger("fusion.worker"))
        self.executor.listen(self.listener)

    @property
    def server(self) -> Any:
        return self.servers[-1]

    def tick(self, now: float = 1e9) -> None:
        """One round of a loop, by default long after everything."""
        settle(self.loop)
        self.executor.tick(now)
        settle(self.loop)

    def ready(self) -> None:
        """Start a fork server that gets ready."""
        self.tick(0.0)
        self.server.say("READY")
        self.tick(0.0)

    def start(self, **fields: Any) -> Run:
        run = self.executor.start(claimed(**fields), 10.0)
        assert run is not None
        return run

    def serial(self, run: Run) -> int:
        """The horse of a run."""
        return int(run.horse.serial)  # type: ignore[attr-defined]

    def answer(self, run: Run, kind: bytes = b"finished", **fields: bytes) -> None:
        """The run's horse sends its outcome; one that runs a single job ends."""
        more = {name.encode(): value for name, value in fields.items()}
        self.server.answer(self.serial(run), {b"kind": kind, b"execution_id": run.claimed.execution_id.encode(), **more})
        settle(self.loop)
