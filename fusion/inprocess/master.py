"""The master: a thread that fetches ready jobs from the plan and puts them into the queue."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from math import inf

from fusion.inprocess.job import ReadyJob, said
from fusion.inprocess.job_queue import Refusal
from fusion.inprocess.shared import SharedParts
from fusion.runtime.backoff import Backoff

#: Seconds after a failed fetch, or a death of the thread: the first pause, and the longest.
_FIRST, _LONGEST = 1.0, 60.0


#: Rows of one fetch that may raise before the fetch is given up.
_MOST_BROKEN_ROWS = 100


class Master:
    """Fetches at once after `wake`, else every `master_fetch_interval_seconds`. Never in the grace period or while memory is scarce.

    It outlives its threads: if one dies, the next continues with the same plan.
    """

    def __init__(self, shared: SharedParts) -> None:
        self._shared = shared
        self._earliest = shared.clock.now() + shared.settings.master_grace_period_seconds
        self._next_at = self._earliest
        self._backoff = Backoff(_FIRST, _LONGEST)
        self._woken = False

    def wake(self) -> None:
        """Fetch as soon as possible. Several calls before that cause only one fetch."""
        with self._shared.lock:
            if not self._woken:
                self._woken = True
                self._shared.cut_pauses()

    def failed(self) -> float:
        """Count a failure. Return the seconds until the next fetch."""
        pause = self._backoff.next()
        self._next_at = self._shared.clock.now() + pause
        return pause

    def work(self) -> None:
        """Run the master's thread."""
        while self._await_turn():
            try:
                self._fetch()
            except Exception as error:
                text = f"Master could not fetch jobs: {said(error)}; it tries again in {self.failed():g} s"
                self._shared.events.tell("plan_failed", logging.ERROR, text, worker="Master", error=said(error))
            else:
                self._backoff.reset()
                self._next_at = self._shared.clock.now() + self._shared.settings.master_fetch_interval_seconds

    def _await_turn(self) -> bool:
        """Wait until a fetch is due; False if no more will be."""
        self._shared.pause(self._due)
        return not self._shared.stopping

    def _due(self) -> float:
        """Return when to go on: the time of the next fetch, inf while paused, -inf at a stop."""
        if self._shared.stopping:
            return -inf
        if self._shared.queue.paused:
            return inf
        return self._earliest if self._woken else max(self._earliest, self._next_at)

    def _fetch(self) -> None:
        self._woken = False
        asked_at = self._shared.clock.now()
        jobs: list[ReadyJob] = []
        try:
            for job in self._ready():
                jobs.append(job)  # noqa: PERF402 - jobs before an error are kept
        except BaseException:
            if jobs:
                self._take(jobs, asked_at)
            raise
        self._take(jobs, asked_at)

    def _take(self, jobs: list[ReadyJob], asked_at: float) -> None:
        """Queue the new jobs of a fetch."""
        shared = self._shared
        shared.events.tell("fetched", logging.INFO, f"👑 Master fetched {len(jobs)} jobs from database", worker="Master")
        put: Counter[Refusal | None] = Counter()
        broken: list[tuple[ReadyJob, Exception]] = []
        for job in jobs:
            if shared.stopping:
                break
            try:
                put[self._put(job, asked_at)] += 1
            except Exception as error:  # an error about this job alone must not delay others
                broken.append((job, error))
        if broken and not put:
            raise broken[0][1]  # an error of the plan itself
        for job, why in broken:
            text = f"Job {job.name!r} is left out of this fetch: {said(why)}"
            shared.events.tell("plan_failed", logging.ERROR, text, job=job, worker="Master", error=said(why))
        text = f"📊 {len(shared.queue.queued_ids())} queued, {len(shared.queue.active())} active"
        text += "".join(f"; {count} {refusal.value}" for refusal, count in put.items() if refusal is not None)
        shared.events.tell("statistics", logging.INFO, text, worker="Master")

    def _ready(self) -> Iterator[ReadyJob]:
        """Fetch jobs from the plan while there is memory for them."""
        for job in _beyond_errors(iter(self._shared.plan.fetch_ready())):
            if isinstance(job, ReadyJob):
                yield job
            else:
                text = f"fetch_ready of the plan gave an object of type {type(job).__name__}, which is left out; use fusion.inprocess.ReadyJob"
                self._shared.events.tell("plan_failed", logging.ERROR, text, worker="Master")
            if self._shared.stopping or self._shared.queue.paused:
                return

    def _put(self, job: ReadyJob, asked_at: float) -> Refusal | None:
        """Queue a new job. The event is sent before a worker can pull it."""
        shared = self._shared
        refusal = shared.queue.refusal(job.id, asked_at)
        if refusal is None and shared.plan.is_currently_running(job.id):
            refusal = Refusal.ACTIVE
        if refusal is not None:
            text = f"Job {job.name!r} {refusal.value}"
            shared.events.tell("duplicate", logging.DEBUG, text, job=job, worker="Master")
            return refusal
        shared.events.tell("queued", logging.INFO, f"📥 Added job {job.name!r} to queue", job=job, worker="Master")
        return shared.queue.put(job, asked_at)


def _beyond_errors(rows: Iterator[object]) -> Iterator[object]:
    """Yield the rows of a plan, even after one that can't be read; raise its error at the end. But a generator ends at its error."""
    first: Exception | None = None
    for _ in range(_MOST_BROKEN_ROWS):
        try:
            yield from rows
            break
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
