"""The manager: the class that users create."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import TypeVar
from weakref import WeakSet

from fusion.inprocess.clock import Clock
from fusion.inprocess.crew import Crew
from fusion.inprocess.events import Events, Handler, log
from fusion.inprocess.job_queue import JobQueue
from fusion.inprocess.plan import ExecutionPlan
from fusion.inprocess.settings import ManagerSettings
from fusion.inprocess.shared import SharedParts
from fusion.inprocess.stats import Stats
from fusion.kernel.memory import MemoryThrottle, Reader, machine_readers
from fusion.settings.readers import cpus

H = TypeVar("H", bound=Handler)


def usual_workers() -> int:
    """Return the default number of workers: nine for ten CPUs, and at least ten."""
    return max(10, cpus() * 9 // 10)


class JobQueueManager:
    """Runs the jobs of a plan in threads of this process, which share its loaded data.

    A master fetches ready jobs, workers run them. Jobs that hold the GIL gain nothing from several workers: this is for jobs that wait, or
    compute in libraries that release the GIL. For times and limits see `ManagerSettings`.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        workers: int | None = None,
        *,
        settings: ManagerSettings | None = None,
        clock: Clock | None = None,
        memory_readers: Mapping[str, Reader] | None = None,
    ) -> None:
        """`memory_readers` for `RAM`, `swap` and `GPU` replace those of this machine. Each returns the percent in use, or None if it is
        unknown.

        ValueError if `workers` is not a whole number of at least 1; ConfigurationError if the environment contains an invalid setting.
        """
        if workers is not None and (type(workers) is not int or workers < 1):
            raise ValueError(
                f"workers is {workers!r}; use a whole number from 1 on, or None for {usual_workers()} on this machine"
            )
        self._plan, self._total = plan, workers or usual_workers()
        self._settings, self._clock, self._readers = settings or ManagerSettings(), clock or Clock(), memory_readers
        self._events = Events()
        self._begin_anew()
        _managers.add(self)

    def _begin_anew(self) -> None:
        """Reset all state, as if nothing had run yet."""
        self._queue = JobQueue(job_timeout=self._settings.job_timeout_seconds, clock=self._clock)
        self._crew: Crew | None = None
        self._shared: SharedParts | None = None

    def start(self) -> None:
        """Start the threads, and return. Does nothing if they run already.

        If a stop left a running job, that job stays active, and does not run again before it has ended.
        """
        with self._queue.lock:
            if self._shared is not None and not self._shared.stopping:
                return
            shared = SharedParts(self._plan, self._settings, self._clock, self._queue, self._events)
            crew = Crew(shared, self._total, self._throttle())
            crew.start()
            self._shared, self._crew = shared, crew

    def stop(self, timeout: float | None = 30.0) -> bool:
        """Take no more jobs, and wait until running ones have ended. True if all threads have ended; False after `timeout` seconds (None =
        no limit).

        Jobs that still run then go on until they or the process end. In a job or a handler of `on_event` it does not wait, and returns
        False. In a signal handler use 0, to avoid waiting: the interrupted code may hold a lock that a job needs.
        """
        crew = self._crew
        if crew is None:
            return True
        crew.stop()
        return crew.join(timeout)

    def stats(self) -> Stats:
        """Return the figures of this moment."""
        with self._queue.lock:
            runs, queued = self._queue.active(), self._queue.queued_ids()
            alive, master = self._crew.alive() if self._crew else (0, False)
            return Stats(
                queue_size=len(queued),
                active_jobs=len(runs),
                active_job_ids=tuple(run.job.id for run in runs),
                queued_job_ids=queued,
                overdue_job_ids=tuple(run.job.id for run in runs if run.overdue),
                total_workers=self._total,
                alive_workers=alive,
                master_thread_alive=master,
                throttled=self._crew.throttled if self._crew else "",
            )

    def on_event(self, handler: H) -> H:
        """Have `handler` called with an `Event` at each step, in the thread that makes the step. Usable as a decorator.

        A slow handler delays that thread. Its errors are logged and do no other harm.
        """
        self._events.add(handler)
        return handler

    def wake(self) -> None:
        """Have the master fetch now, as there is work. In the grace period, or while memory is scarce, it fetches afterwards."""
        if self._crew is not None:
            self._crew.master.wake()

    def __enter__(self) -> JobQueueManager:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _throttle(self) -> MemoryThrottle:
        readers = machine_readers() if self._readers is None else self._readers
        if not readers:
            log.warning("memory can't be read here: there is no throttle; pip install psutil for one")
            return MemoryThrottle([], self._settings.memory_check_interval)
        return MemoryThrottle.of(self._settings, {name: _patient(name, read) for name, read in readers.items()})


def _patient(name: str, read: Reader) -> Reader:
    """Return a reader that returns None where this one raises."""

    def patient() -> float | None:
        try:
            return read()
        except Exception:
            log.exception("%s can't be read, and counts as free", name)
            return None

    return patient


# -- forks: a child has no threads

_managers: WeakSet[JobQueueManager] = WeakSet()


def _forget() -> None:
    """Reset managers in a forked process: no thread runs in it, and locks may be held by threads that it lacks."""
    for manager in list(_managers):
        manager._begin_anew()


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_forget)
