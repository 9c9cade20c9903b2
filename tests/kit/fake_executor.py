"""An executor in memory: a test says when a run says something, ends or dies."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from signal import SIGKILL

from fusion.executors.base import Capacity, Death, ExecutorListener, KillCause, Run, ServerStatus
from fusion.store.layout.records import Claimed


class FakeExecutor:
    """Implements `fusion.executors.base.Executor`.

    - `slots` jobs run at a time, in processes of `per_process` jobs each: what kills a process ends all runs in it;
    - a run is killed alone, at once, and reported as ended; with `slow_kills` it is reported only by `reap`;
    - up to `depth` jobs are queued; `advance` has the first of them begin.
    """

    def __init__(self, slots: int = 2, *, per_process: int = 1, depth: int = 0, slow_kills: bool = False) -> None:
        self.slots, self.depth, self._per_process, self._slow_kills = slots, depth, per_process, slow_kills
        self.running: list[Run] = []
        self.queued: list[Run] = []
        self.killed: list[tuple[Run, KillCause]] = []
        self.exchanges: list[tuple[float, int]] = []
        self.told: list[tuple[Run, dict[bytes, bytes]]] = []
        self.next_at = float("inf")
        self.server = ServerStatus(generation=1)
        self.reloads = self.expected = 0
        self.drained = self.closed = self.only_high = False
        self._listener: ExecutorListener | None = None

    @property
    def listener(self) -> ExecutorListener:
        assert self._listener is not None
        return self._listener

    def listen(self, listener: ExecutorListener) -> None:
        self._listener = listener

    def room(self) -> Capacity:
        return Capacity(self.capacity, len(self.running), self.only_high)

    @property
    def capacity(self) -> int:
        return 0 if self.drained or self.closed else self.slots - len(self.running)

    @property
    def busy(self) -> bool:
        return bool(self.running)

    def expect(self) -> None:
        self.expected += 1

    def start(self, claimed: Claimed, limit: float, *, behind: int = 0) -> Run | None:
        if not (self.running and len(self.queued) < self.depth if behind else self.capacity):
            return None
        run = Run(claimed, limit, time.monotonic())
        (self.queued if behind else self.running).append(run)
        return run

    def tell(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        self.told.append((run, dict(frame)))

    def prefetch_room(self, lanes: int, free: int) -> int:
        return max(0, self.depth - len(self.queued) - free) if lanes and not self.drained else 0

    def exchanged(self, seconds: float, jobs: int) -> None:
        self.exchanges.append((seconds, jobs))

    def recall(self, why: str) -> None:
        back, self.queued = self.queued, []
        for run in back:
            self.listener.returned(run, why)

    def kill(self, run: Run, cause: KillCause) -> None:
        if run in self.queued:
            self.queued.remove(run)
            run.killed = cause
            self.listener.ended(run, Death())
        elif run in self.running:
            run.killed = cause
            self.killed.append((run, cause))
            if not self._slow_kills:
                self.die(run, SIGKILL, killed=True, timed_out=cause is KillCause.TIMEOUT)

    def stop(self, run: Run) -> None:
        """It runs on, until the test says what it does about that."""
        if run in self.queued:
            self.queued.remove(run)
            run.killed = KillCause.STOPPED
            self.listener.ended(run, Death())
        else:
            run.stopping = True

    def pid(self, run: Run) -> int | None:
        return None

    def tick(self, now: float) -> None:
        pass

    def flush(self) -> None:
        pass

    def reload(self) -> None:
        self.reloads += 1
        self.server = replace(self.server, generation=self.server.generation + 1)

    def drain(self) -> None:
        self.drained = True
        self.recall("its worker takes no more jobs")

    def close(self) -> None:
        self.closed = True
        self.crash(self.running)
        self.recall("the executor ended")

    # -- what a test does

    def say(self, run: Run, kind: bytes = b"log", **fields: bytes) -> None:
        """The run sends a frame that is no outcome."""
        self.listener.frame(run, {b"kind": kind, **{name.encode(): value for name, value in fields.items()}})

    def finish(self, run: Run, kind: bytes = b"finished", **fields: bytes) -> None:
        """The run sends its outcome."""
        self.running.remove(run)
        self.say(run, kind, **fields)

    def die(self, run: Run, status: int, *, killed: bool = False, timed_out: bool = False) -> None:
        """The run ends with this raw wait status of its process."""
        self.running.remove(run)
        self.listener.ended(run, Death(status, 1024, killed, timed_out))

    def reap(self) -> None:
        """Every killed run is reported."""
        for run in [run for run in self.running if run.killed]:
            self.die(run, SIGKILL, killed=True)

    def neighbours(self, run: Run) -> list[Run]:
        """The runs in the process of this one, it included."""
        first = self.running.index(run) // self._per_process * self._per_process
        return self.running[first : first + self._per_process]

    def crash(self, runs: list[Run]) -> None:
        """The executor itself, or one of its processes, dies with these runs."""
        for run in list(runs):
            self.running.remove(run)
            self.listener.ended(run, Death())

    def advance(self) -> Run:
        """The first queued run begins."""
        run = self.queued.pop(0)
        self.running.append(run)
        self.listener.begun(run)
        return run

    def make_room(self, slots: int) -> None:
        """There is more room than before."""
        before, self.slots = self.capacity, slots
        if not before and self.capacity:
            self.listener.capacity_changed()
