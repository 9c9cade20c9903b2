"""The queue between master and workers, and the memory that keeps a job from running twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from enum import Enum
from math import inf

from fusion.inprocess.clock import Clock
from fusion.inprocess.job import ActiveRun, JobState, Outcome, ReadyJob

#: Seconds for which a completed job is not accepted again: the plan may read from a stale copy of its data.
RECENT = 30.0


class Refusal(Enum):
    """Reasons for which a job is not put into the queue. The log shows the value."""

    QUEUED = "already in queue"
    ACTIVE = "already running"
    RECENT = f"completed within the last {RECENT:g} s"


class JobQueue:
    """Jobs in the order of arrival. Each id occurs once: queued, active, or completed a short time ago. Safe to use from any thread.

    `lock` guards the whole state: its holder sees one consistent moment. Every step except waiting takes O(1).
    """

    def __init__(self, *, job_timeout: float = 0, clock: Clock | None = None) -> None:
        """`job_timeout`: seconds for a job without its own timeout; 0 = no limit."""
        self._clock, self._job_timeout = clock or Clock(), job_timeout
        #: Reentrant: a signal handler that calls `stop` may interrupt the thread that holds it.
        self.lock = threading.RLock()
        self._ready = threading.Condition(self.lock)
        self._queued: OrderedDict[Hashable, ReadyJob] = OrderedDict()
        self._active: dict[Hashable, ActiveRun] = {}
        #: When each job completed, the oldest first.
        self._completed: OrderedDict[Hashable, float] = OrderedDict()
        self._paused = False

    def refusal(self, job_id: Hashable, as_of: float | None = None) -> Refusal | None:
        """Return why a job with this id would not be accepted; None if it would.

        `as_of`: when the caller learned that the job is ready. A job that completed later, or shortly before, is no longer ready.
        """
        with self.lock:
            forgotten = (self._clock.now() if as_of is None else as_of) - RECENT
            while self._completed and next(iter(self._completed.values())) <= forgotten:
                self._completed.popitem(last=False)
            if job_id in self._queued:
                return Refusal.QUEUED
            if job_id in self._active:
                return Refusal.ACTIVE
            return Refusal.RECENT if job_id in self._completed else None

    def put(self, job: ReadyJob, as_of: float | None = None) -> Refusal | None:
        """Append a job and return None; or return the reason if it is not accepted. `as_of` as in `refusal`."""
        with self.lock:
            refusal = self.refusal(job.id, as_of)
            if refusal is None:
                self._queued[job.id] = job
                self._ready.notify()
            return refusal

    def get(self, timeout: float | None = None, leave: Callable[[], bool] = lambda: False) -> ActiveRun | None:
        """Take the first job. It is active from now on, in this thread.

        Wait while there is none or the queue is paused. None after `timeout` seconds, or once `leave` returns true; the code that changes
        that must call `wake_all`.
        """
        until = inf if timeout is None else self._clock.now() + timeout
        with self.lock:
            while not leave():
                if self._queued and not self._paused:
                    _, job = self._queued.popitem(last=False)
                    seconds = self._job_timeout if job.timeout is None else job.timeout
                    run = self._active[job.id] = ActiveRun(job, self._clock.now() + seconds if seconds else inf)
                    return run
                left = until - self._clock.now()
                if left <= 0:
                    return None
                self._clock.wait(self._ready, None if left == inf else left)
            return None

    def decide(self, run: ActiveRun, outcome: Outcome) -> bool:
        """Set the outcome of a run. False if it has one already: either its result or its timeout counts, never both."""
        with self.lock:
            if run.outcome is not None:
                return False
            run.outcome = outcome
            return True

    def settled(self, run: ActiveRun) -> None:
        """Remove a run whose outcome the plan has: its job is no longer active. Without an outcome, another process had the job."""
        with self.lock:
            if self._active.get(run.job.id) is not run:
                return
            del self._active[run.job.id]
            if run.outcome is not None and run.outcome.error is None:
                self._completed[run.job.id] = self._clock.now()

    def pause(self, paused: bool = True) -> None:
        """Stop giving out jobs; with False start again."""
        with self.lock:
            self._paused = paused
            self._ready.notify_all()

    def clear(self) -> int:
        """Drop the queued jobs, which stay Pending in the plan. Return their number."""
        with self.lock:
            count = len(self._queued)
            self._queued.clear()
            return count

    def wake_all(self) -> None:
        """Make all threads that wait in `get` call `leave` again."""
        with self.lock:
            self._ready.notify_all()

    @property
    def paused(self) -> bool:
        """True while no jobs are given out."""
        return self._paused

    def state(self, job_id: Hashable) -> JobState:
        """Return the state of a job as far as this process knows it; an unknown job is Pending."""
        with self.lock:
            if job_id in self._queued:
                return JobState.QUEUED
            if job_id in self._active:
                return JobState.ACTIVE
            return JobState.COMPLETE if job_id in self._completed else JobState.PENDING

    def queued_ids(self) -> tuple[Hashable, ...]:
        """Return the ids of the queued jobs, the next one first."""
        with self.lock:
            return tuple(self._queued)

    def active(self) -> tuple[ActiveRun, ...]:
        """Return the runs of the active jobs, the oldest first."""
        with self.lock:
            return tuple(self._active.values())
