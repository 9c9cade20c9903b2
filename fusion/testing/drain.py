"""Runs jobs in the process of a test, by the kit's clock: what a fleet with one worker and one scheduler does, one step after the other."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from math import ceil
from typing import Any

from redis import Redis

from fusion.job import Job
from fusion.runtime.redis_link import RedisLink
from fusion.scheduler.ticker import Ticker
from fusion.settings import Settings
from fusion.store.access import glance_of
from fusion.store.layout.records import Claimed, Turn
from fusion.store.scripting.kit_clock import KitClock
from fusion.store.write.cron_broker import CronBroker
from fusion.worker.in_process import Ended, InProcess

log = logging.getLogger("fusion.testing")
_NAME = "test-kit"
#: What is done at one instant without an end is a mistake: calls of scripts that find something each time.
_ROUNDS = 1000
#: Instants at which something may come due, for each run that a drain may have.
_JUMPS = 10


@dataclass(frozen=True)
class Run:
    """One run of a job. `outcome`: `finished`, `failed` (for good), `retry` (it runs again later), or another of a commit. `at`: when it
    began, by the kit's clock. `reason`: the last line of the error."""

    task: str
    id: str
    outcome: str
    at: datetime
    reason: str = ""

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.task} ({self.id}) {self.outcome}{reason}"

    @property
    def job(self) -> Job:
        """The job as it is now. NoSuchJobError if it is gone."""
        return Job.fetch(self.id)


class _NoLimits:
    """The guard of a run in a test: no timeout, no signals. pytest-timeout and debuggers have these for themselves."""

    among_others = True

    def run_task(self, seconds: float | None, func: Callable[[], Any], /) -> Any:
        """Call `func`."""
        return func()

    def run_with_timeout(self, seconds: float | None, what: str, func: Callable[[], Any], /) -> Any:
        """Call `func`."""
        return func()

    def run_coroutine(self, coroutine: Any, /) -> Any:
        """Run a coroutine; in a thread of its own if this one runs an event loop already (a test that is a coroutine itself)."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(coroutine)
        return _in_thread(coroutine)

    def ended_by_stop(self, error: BaseException, /) -> bool:
        """Return False: nothing stops it."""
        return False

    def check(self) -> None:
        """Raise nothing."""


def _in_thread(coroutine: Any) -> Any:
    found: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(asyncio.run(coroutine))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="fusion-test-kit")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


class _Worker(InProcess):
    """The worker of the kit. No lease is renewed: nothing reaps."""

    def serve(self, names: list[str]) -> None:
        """Serve these queues, too; those that it served last come last, as in a worker."""
        known = self._served.bells
        if new := [name for name in names if name not in known]:
            self._served.bells = [*known, *new]

    @contextmanager
    def _renewed(self, claimed: Claimed) -> Iterator[None]:
        yield


class Drain:
    """Runs what is due on the kit's Redis."""

    def __init__(self, settings: Settings, connection: Redis, clock: KitClock) -> None:
        settings = replace(settings, name=_NAME)
        self._settings, self._connection, self._clock = settings, connection, clock
        self._worker: _Worker | None = None
        self._cron = CronBroker.of(connection, settings)
        self._ticker = Ticker(self._cron, RedisLink(log), 0.0, log)
        self._draining = False
        #: All runs so far.
        self.runs: list[Run] = []
        #: True when there may be a queue that the worker does not serve yet.
        self.new_queues = True
        self._releases = True

    def drain(self, span_ms: int, limit: int) -> list[Run]:
        """Run what is due now, and what comes due in this time. RuntimeError after `limit` runs. A task that calls this runs nothing: what it
        has enqueued runs after it."""
        if self._draining:
            return []
        self._draining, self._releases, before = True, True, len(self.runs)
        try:
            until = self._clock.now() * 1000 + span_ms
            for _ in range(_JUMPS * limit):
                wait = self._run_due(before + limit)
                left = ceil(until - self._clock.now() * 1000)
                if not span_ms or left <= 0:
                    return self.runs[before:]
                self._clock.move(left if wait is None else max(1, min(left, ceil(wait))))
        finally:
            self._draining = False
        raise RuntimeError(f"{_JUMPS * limit} times something came due; drain a shorter time, or give limit=")

    def close(self) -> None:
        """Close the connection of the runs."""
        if self._worker is not None:
            self._worker.broker.connection.close()

    def _made(self) -> _Worker:
        if self._worker is None:
            self._worker = _Worker(self._settings, [], self._connection, guard=_NoLimits())
            self._worker.enter()
        return self._worker

    def _run_due(self, limit: int) -> float | None:
        """Run all that is due. Returns the milliseconds until something else is, None if nothing is planned."""
        worker, waits, look = self._made(), list[float | None](), True
        ended: Ended | None = None
        while True:
            if look:
                waits = self._move_due()
            if self.new_queues:
                self.new_queues = False
                worker.serve(glance_of(self._connection).queues())
            committed, turn = ended is not None, worker.turn(ended)
            if turn.bad:
                raise RuntimeError(f"jobs of queue {turn.bad[0][0]} can't be claimed: {turn.bad[0][1]}")
            if ended is not None:
                self._note(ended, turn)
                ended = None
            self._releases = self._releases or turn.releases
            if turn.jobs:
                if len(self.runs) >= limit:
                    raise RuntimeError(f"{limit} runs, and there is still more: does a task enqueue itself? Else give limit=")
                (claimed,) = turn.jobs
                self._began = self._clock.now()
                ended = worker.run_one(claimed)
                look = self._releases or (turn.next_in is not None and turn.next_in <= self._clock.now() - self._began)
            elif committed or turn.again or turn.releases or turn.next_in == 0:
                look = self._releases = True
            else:  # it follows a look: nothing is left, whatever answers were lost on the way
                waits += [turn.next_in, turn.opens_in]
                found = [wait for wait in waits if wait is not None]
                return min(found) * 1000 if found else None

    def _move_due(self) -> list[float | None]:
        """Decide ticks, and move what is due, expired or free. Returns the seconds until there is more of each: None for never."""
        broker = self._made().broker
        for _ in range(_ROUNDS):
            ticks = self._cron.cron_due()
            decided = [self._ticker.decide(stored, ticks.now) for stored in ticks.entries]
            moved, due, over, batch = broker.promote()
            expired = tended = released = 0
            release = None
            if over is not None and over <= 0:
                expired, over = broker.expire()
            if batch is not None and batch <= 0:
                tended, batch = broker.tend_batches()
            if self._releases or expired or tended:
                released, release = broker.release()
                self._releases = release is not None
            waits = [ticks.next_in, due, over, batch, release]
            if not (decided or moved or expired or tended or released or any(wait is not None and wait <= 0 for wait in waits)):
                return waits
            self.new_queues = True
        raise RuntimeError("ticks, due jobs, ends of waiting jobs, batches or dependents are due without an end")

    def _note(self, ended: Ended, turn: Turn) -> None:
        claimed, decision, _ = ended
        answer = turn.answers[0] if turn.answers else "ok"
        outcome = decision.kind if answer == "ok" else answer
        task = claimed.fields.get(b"description", b"").decode("utf-8", "replace")
        at = datetime.fromtimestamp(self._began, timezone.utc)
        self.runs.append(Run(task, claimed.id, outcome, at, decision.reason))
