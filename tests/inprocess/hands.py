"""A clock that a test turns, a plan that misbehaves as told, and managers that wait for nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from fusion.inprocess import Event, JobQueueManager, ManagerSettings, MemoryPlan
from fusion.inprocess.clock import Clock
from fusion.kernel.memory import Reader
from tests.kit.waiting import eventually

#: Nothing is waited for but the next fetch.
AT_ONCE = {"master_grace_period_seconds": 0, "worker_stagger_seconds": 0, "worker_cooldown_seconds": 0}


class HandClock(Clock):
    """Time passes when the test says so, and all who wait look at it then."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._conditions: set[threading.Condition] = set()

    def now(self) -> float:
        return self._now

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        self._conditions.add(condition)
        condition.wait(0.2)  # who begins to wait as the clock is turned was not among those told, and looks again

    def advance(self, seconds: float) -> None:
        self._now += seconds
        for condition in list(self._conditions):
            with condition:
                condition.notify_all()


class Troubled(MemoryPlan):
    """Raises in a call as long as `raising` has an error for it; counts its calls, and jobs that run twice at once."""

    def __init__(self) -> None:
        super().__init__()
        self.raising: dict[str, BaseException] = {}
        self.calls: Counter[str] = Counter()
        self.twice: list[Hashable] = []
        self._running: set[Hashable] = set()
        self._mine = threading.Lock()

    def job(self, job_id: Hashable, function: Callable[[], Any]) -> Callable[[], Any]:
        """The function, watched."""

        def watched() -> Any:
            with self._mine:
                if job_id in self._running:
                    self.twice.append(job_id)
                self._running.add(job_id)
            try:
                return function()
            finally:
                with self._mine:
                    self._running.discard(job_id)

        return watched

    def _called(self, name: str) -> None:
        with self._mine:
            self.calls[name] += 1
        if name in self.raising:
            raise self.raising[name]

    def fetch_ready(self) -> Any:
        self._called("fetch_ready")
        return super().fetch_ready()

    def is_currently_running(self, job_id: Hashable) -> bool:
        self._called("is_currently_running")
        return super().is_currently_running(job_id)

    def mark_running(self, job_id: Hashable) -> bool:
        self._called("mark_running")
        return super().mark_running(job_id)

    def mark_complete(self, job_id: Hashable, result: Any) -> None:
        self._called("mark_complete")
        super().mark_complete(job_id, result)

    def mark_pending(self, job_id: Hashable, error: str) -> None:
        self._called("mark_pending")
        super().mark_pending(job_id, error)


class Witness:
    """All events of a manager."""

    def __init__(self, manager: JobQueueManager) -> None:
        self.events: list[Event] = []
        manager.on_event(self.events.append)

    def of(self, kind: str) -> list[Event]:
        return [event for event in list(self.events) if event.kind == kind]

    def texts(self, *kinds: str) -> list[str]:
        return [event.text for event in list(self.events) if not kinds or event.kind in kinds]

    def await_kind(self, kind: str, count: int = 1) -> list[Event]:
        """The events of this kind, once there are this many."""
        return eventually(lambda: found if len(found := self.of(kind)) >= count else None, why=f"{count} x {kind}") or []


@contextmanager
def managed(
    plan: Any, workers: int = 2, *, clock: Clock | None = None, ram: Reader = lambda: 10.0, **settings: Any
) -> Iterator[tuple[JobQueueManager, Witness]]:
    """A manager that runs, and a list of its steps; at the end it stops."""
    chosen = ManagerSettings(**{**AT_ONCE, **settings})
    manager = JobQueueManager(plan, workers, settings=chosen, clock=clock, memory_readers={"RAM": ram})
    witness = Witness(manager)
    manager.start()
    try:
        yield manager, witness
    finally:
        if not isinstance(clock, HandClock):
            manager.stop(None)
        else:
            _end(manager, clock)


def _end(manager: JobQueueManager, clock: HandClock) -> None:
    """Stop it. A thread that takes its time to end is seen at a later look of the supervisor, for which the clock must go on."""
    until = time.monotonic() + 1.0  # some tests leave a job that hangs
    while not manager.stop(0) and time.monotonic() < until and threads():
        clock.advance(5)
        time.sleep(0.005)


def threads() -> set[str]:
    """Names of the threads of managers that are alive."""
    return {thread.name for thread in threading.enumerate() if type(thread).__module__.startswith("fusion.inprocess")}
