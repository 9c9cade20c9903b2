"""A worker: a thread that pulls jobs, runs them and reports their outcomes to the plan."""

from __future__ import annotations

import inspect
import logging
from contextvars import Context
from math import inf
from typing import Any

from fusion.exceptions import JobTimeoutException
from fusion.inprocess.current import ActiveJob, current_job
from fusion.inprocess.job import ActiveRun, Outcome, said
from fusion.inprocess.shared import CrewThread, SharedParts
from fusion.kernel.forks import ends_forks
from fusion.runtime.backoff import Backoff

#: Seconds between two attempts to report to a plan that raises: the first pause, the longest, and the longest while the manager stops.
_FIRST, _LONGEST, _WHILE_STOPPING = 1.0, 60.0, 1.0


class Worker(CrewThread):
    """Runs one job after the other, or only one in single-job mode. It begins at `ready_at` of the clock at the earliest."""

    def __init__(self, shared: SharedParts, number: int, ready_at: float) -> None:
        super().__init__(shared, f"Worker-{number}", self._work)
        self.number = number
        #: True if it must take no more jobs: its job is overdue, and another worker has replaced it.
        self.retired = False
        #: True once it had a job.
        self.worked = False
        self._ready_at = ready_at

    def _work(self) -> None:
        shared = self.shared
        while True:
            shared.pause(lambda: -inf if self._leaves() else self._ready_at)
            run = shared.queue.get(leave=self._leaves)
            if run is None or not self._do(run) or shared.settings.worker_single_job_mode:
                return
            self._ready_at = shared.clock.now() + shared.settings.worker_cooldown_seconds

    def _leaves(self) -> bool:
        return self.retired or self.shared.stopping

    def _do(self, run: ActiveRun) -> bool:
        """Run the job and report to the plan. False if the job is overdue: then a stand-in reports it once this thread has ended."""
        shared, job = self.shared, run.job
        shared.expect(run.deadline + shared.settings.job_timeout_grace_seconds)
        self.worked, self.doing = True, f" with job {job.label}"
        shared.events.tell("pulled", logging.INFO, f"👷 {self.name} pulled job from queue", job=job, worker=self.name)
        try:
            if shared.plan.mark_running(job.id) is False:
                shared.queue.settled(run)
                text = f"Job {job.name!r} is left to who was faster: the plan says that it runs already"
                shared.events.tell("left", logging.INFO, text, job=job, worker=self.name)
                return True
            # A slow plan may have used up all of the job's time.
            outcome = run.outcome or Outcome(result=perform(run, shared))
        except (Exception, JobTimeoutException) as error:
            outcome = Outcome.raised(error)
        except BaseException as error:
            shared.queue.decide(run, Outcome.raised(error))
            raise
        if not shared.queue.decide(run, outcome):
            return False
        settle(shared, run, self.name)
        self.doing = ""
        return True


def perform(run: ActiveRun, shared: SharedParts) -> Any:
    """Run a job's function in its own context, so that no context variable reaches the next job."""
    context = Context()
    context.run(current_job.set, ActiveJob(run, shared.clock, lambda: shared.stopping))
    with ends_forks():
        result = context.run(run.job.run)
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(f"job {run.job.name!r} gave a coroutine, which nobody runs; wrap it: lambda: asyncio.run(...)")
    return result


def settle(shared: SharedParts, run: ActiveRun, who: str) -> None:
    """Report the outcome of a run to the plan, repeatedly until the plan accepts it. Until then the job stays active and its outcome is
    kept."""
    job, outcome, backoff = run.job, run.outcome, Backoff(_FIRST, _LONGEST)
    assert outcome is not None
    while True:
        try:
            if outcome.error is None:
                shared.plan.mark_complete(job.id, outcome.result)
            else:
                shared.plan.mark_pending(job.id, outcome.error)
            break
        except BaseException as error:
            failed_at, pause = shared.clock.now(), backoff.next()
            call = "mark_complete" if outcome.error is None else "mark_pending"
            text = f"FATAL: {call} of the plan raised for job {job.label}: {said(error)}. The job stays active, "
            text += f"its outcome is kept, and {who} tries again in {pause:g} s"
            shared.events.tell("plan_failed", logging.CRITICAL, text, job=job, worker=who, error=said(error))
        shared.pause(lambda: failed_at + (min(pause, _WHILE_STOPPING) if shared.stopping else pause))  # noqa: B023 - called in this round
    shared.queue.settled(run)
    if outcome.error is None:
        shared.events.tell("finished", logging.INFO, f"✅ {who} finished job", job=job, worker=who)
    else:
        text = f"Job {job.label} is Pending again: {outcome.reason}"
        shared.events.tell("pending", logging.ERROR, text, job=job, worker=who, error=outcome.error)
