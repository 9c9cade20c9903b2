"""Jobs on their way to processes, and what comes back from there."""

from __future__ import annotations

from fusion.execution.completion import Decision
from fusion.executors.base import Death, Executor, KillCause, Run
from fusion.kernel.failpoints import failpoint
from fusion.runtime.job_log import JobLog
from fusion.runtime.membership import Membership
from fusion.store.layout.records import Claimed
from fusion.worker.envelope import EnvelopeCheck
from fusion.worker.gathered import Gathered
from fusion.worker.outcomes import Outcomes
from fusion.worker.reports import Reports
from fusion.worker.slots import Slots
from fusion.worker.stops import Stops
from fusion.worker.task_logs import TaskLogs

#: Frames after which the run goes on.
_LINES = (b"log", b"meta", b"report")


class Dispatcher:
    """Gives each claimed job to the executor, or back; as the executor's listener passes on what becomes of it: exactly one outcome."""

    def __init__(
        self,
        executor: Executor,
        slots: Slots,
        envelopes: EnvelopeCheck,
        outcomes: Outcomes,
        task_logs: TaskLogs,
        reports: Reports,
        job_log: JobLog,
        stops: Stops,
        gathered: Gathered,
    ) -> None:
        self._gathered = gathered
        self._executor, self._slots, self._envelopes, self._stops = executor, slots, envelopes, stops
        self._outcomes, self._task_logs, self._reports, self._job_log = outcomes, task_logs, reports, job_log
        executor.listen(self)
        gathered.attach(outcomes, self.start)

    def start(self, claimed: Claimed) -> None:
        """Start a claimed job, or let it wait behind another, or for others of its call; else it goes back."""
        failpoint("claim.after_reply")
        slots, executor = self._slots, self._executor
        idle = self._gathered.fits(claimed) or slots.fits(claimed)  # its slot may be gone since it was asked for
        if not (idle or slots.may_wait(claimed)):
            self._outcomes.give_back(claimed, "no free process")
            return
        if self._stops.is_told(claimed):
            self._outcomes.stopped(claimed)
            return
        limit = self._envelopes.open(claimed)
        if isinstance(limit, Decision):
            self._outcomes.refuse(claimed, limit)
            return
        self._job_log.started(claimed)
        if idle and self._gathered.take(claimed, limit):
            slots.took(1)
            return
        if (executor.start(claimed, limit) if idle else executor.prefetch(claimed, limit, slots.lanes)) is None:
            self._outcomes.give_back(claimed, "no process for it")
            return
        slots.took(1)
        failpoint("dispatch.after")

    def renew_leases(self, membership: Membership, now: float) -> None:
        """Renew the leases of everything this worker holds, outcomes that wait for Redis included; kill what it holds no more, stop
        what is to stop."""
        runs = [*self._gathered.runs()]
        held = [(c.id, c.execution_id) for c in (*(run.claimed for run in runs), *self._outcomes.waiting())]
        for run, answer in zip(runs, membership.beat(now, held), strict=False):
            if answer == "lost":
                self._job_log.lost(run.claimed)
                self._gathered.lost(run)
            elif answer == "stopped":
                self._gathered.stop(run)

    def frame(self, run: Run, frame: dict[bytes, bytes]) -> None:
        """A run sent a log line, its meta, a report, or its outcome; or one of those that share it did."""
        if frame.get(b"kind") == b"member":
            if (opened := self._gathered.opened(run, frame)) is None:
                return
            run, frame = opened
        elif frame.get(b"kind") not in _LINES and self._gathered.over(run, frame):
            return
        if frame.get(b"kind") == b"report":
            self._reports.take(run, frame)
        elif not self._task_logs.take(run, frame):
            failpoint("outcome.received")
            self._outcomes.received(run, self._reports.left(run) | frame)

    def ended(self, run: Run, death: Death) -> None:
        """A run is over without an outcome of its own."""
        if self._gathered.ended(run, death):
            return
        if run.killed not in (KillCause.COLD, KillCause.LOST):  # of those nothing is told
            self._outcomes.died(run, death, self._reports.left(run))

    def returned(self, run: Run, why: str) -> None:
        """A run has not begun: another process takes the job, or Redis has it back."""
        if self._gathered.returned(run, why):
            return
        if not (self._slots.fits(run.claimed) and self._executor.start(run.claimed, run.limit)):
            self._slots.took(-1)
            self._outcomes.give_back(run.claimed, why)

    def begun(self, run: Run) -> None:
        """A prefetched job runs for longer than a moment."""
        self._outcomes.begun(run)

    def capacity_changed(self) -> None:
        """There is room for a job where there was none."""
        self._slots.turn_wanted = True
