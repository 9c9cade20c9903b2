"""Starts claimed jobs, and passes on what their runs send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusion.execution.completion import Decision
from fusion.executors.base import Death, Executor, KillCause, Run
from fusion.kernel.failpoints import failpoint
from fusion.runtime.job_log import JobLog
from fusion.runtime.membership import Membership
from fusion.store.layout.records import Claimed
from fusion.worker.admission import Slots
from fusion.worker.batched_calls import BatchedCalls
from fusion.worker.envelope import EnvelopeCheck
from fusion.worker.kept_logs import KeptLogs
from fusion.worker.outcomes import Outcomes
from fusion.worker.reports import Reports
from fusion.worker.stop_requests import StopRequests
from fusion.worker.task_logs import TaskLogs

if TYPE_CHECKING:
    from fusion.worker.telemetry import Telemetry

#: Frames after which the run goes on.
_LINES = (b"log", b"output", b"meta", b"report", b"stands", b"telemetry")


class Dispatcher:
    """Starts each claimed job in the executor, or gives it back. It handles the executor's events: each job gets exactly one outcome."""

    def __init__(
        self,
        executor: Executor,
        *,
        slots: Slots,
        envelopes: EnvelopeCheck,
        stop_requests: StopRequests,
        batched_calls: BatchedCalls,
        outcomes: Outcomes,
        reports: Reports,
        task_logs: TaskLogs,
        kept_logs: KeptLogs,
        job_log: JobLog,
        telemetry: Telemetry | None = None,
    ) -> None:
        """`telemetry`: takes what middleware records of runs, if any of it records something."""
        self._executor, self._slots, self._envelopes, self._stop_requests = executor, slots, envelopes, stop_requests
        self._batched_calls, self._outcomes, self._reports = batched_calls, outcomes, reports
        self._task_logs, self._kept_logs, self._job_log = task_logs, kept_logs, job_log
        self._telemetry = telemetry
        executor.listen(self)
        batched_calls.attach(outcomes, self.start)

    def start(self, claimed: Claimed) -> None:
        """Start a claimed job, queue it behind another, or keep it for its batched call. If none is possible, give it back."""
        failpoint("claim.after_reply")
        slots, executor = self._slots, self._executor
        # Its slot may have been taken since the turn was sent.
        idle = (self._batched_calls.waits and self._batched_calls.fits(claimed)) or slots.fits(claimed)
        if claimed.predecessor:
            idle = False
        if not (idle or slots.may_wait(claimed)):
            self._outcomes.give_back(claimed, "no free process")
            return
        if claimed.execution_id in self._stop_requests.early:
            self._outcomes.stopped(claimed)
            return
        limit = self._envelopes.open(claimed)
        if isinstance(limit, Decision):
            self._outcomes.refuse(claimed, limit)
            return
        gathered = idle and b"gather" in claimed.fields and self._batched_calls.take(claimed, limit)
        if not (gathered or executor.start(claimed, limit, behind=0 if idle else slots.lanes)):
            self._outcomes.give_back(claimed, "no process for it")
            return
        slots.take_slot()
        self._job_log.started(claimed)
        if gathered:
            return
        failpoint("dispatch.after")

    def renew_leases(self, membership: Membership, now: float) -> None:
        """Renew the leases of all jobs that this worker holds, also of those whose outcome is not committed.

        Kill the runs whose lease another worker has, and stop those that are to stop.
        """
        runs = [*self._batched_calls.runs()]
        held = [(c.id, c.execution_id) for c in (*(run.claimed for run in runs), *self._outcomes.uncommitted())]
        for run, answer in zip(runs, membership.beat(now, held), strict=False):
            if answer == "lost":
                self._job_log.lost(run.claimed)
                self._batched_calls.lost(run)
            elif answer == "stopped":
                self._batched_calls.stop(run)

    def frame(self, run: Run, frame: dict[bytes, bytes]) -> None:
        """A run, or one job of a batched call, sent a log line, its meta, a report or its outcome."""
        if frame.get(b"kind") == b"member":
            if (opened := self._batched_calls.opened(run, frame)) is None:
                return
            run, frame = opened
        elif self._batched_calls.calls and frame.get(b"kind") not in _LINES:
            members = self._members(run) if self._telemetry is not None else []
            if self._batched_calls.over(run, frame):
                if self._telemetry is not None:
                    for member in members:
                        self._telemetry.died(member, Death())
                return
        kind = frame.get(b"kind")
        if kind == b"report":
            self._reports.take(run, frame)
        elif kind == b"stands":
            self._outcomes.stands(run, frame)
        elif kind == b"log" or kind == b"meta":
            self._task_logs.take(run, frame)
        elif kind == b"output":
            self._kept_logs.take(run, frame)
        elif kind == b"telemetry":
            if self._telemetry is not None:
                self._telemetry.take(run, frame)
        else:
            if self._telemetry is not None:
                self._telemetry.end(run)
            if run.log is not None:
                self._kept_logs.end(run, finished=kind == b"finished")
            if run.unsaid or b"unsaid" in frame:
                self._task_logs.note_dropped(run, frame)
            failpoint("outcome.received")
            self._outcomes.received(run, self._reports.left(run) | frame if self._reports.pending else frame)

    def ended(self, run: Run, death: Death) -> None:
        """A run is over, and its process sent no outcome."""
        if self._telemetry is not None:
            for one in self._members(run) or [run]:
                self._telemetry.died(one, death, run.killed)
        if self._batched_calls.ended(run, death):
            return
        if run.log is not None:
            if run.killed is KillCause.LOST:
                self._kept_logs.forget(run)
            else:
                self._kept_logs.end(run, finished=run.stands is not None and run.stands.get(b"kind") == b"finished")
        if run.killed is not KillCause.LOST and (
            run.stands is not None or run.killed is not KillCause.COLD
        ):  # the others have no outcome: their jobs run again elsewhere
            self._outcomes.died(run, death, self._reports.left(run))

    def _members(self, run: Run) -> list[Run]:
        """Return the jobs of a batched call that have no outcome yet; none for any other run."""
        return list(self._batched_calls.calls.get(run, {}).values())

    def returned(self, run: Run, why: str) -> None:
        """A run has not begun: another process takes the job, or it goes back to its queue."""
        if self._batched_calls.returned(run, why):
            return
        if run.claimed.predecessor or not (self._slots.fits(run.claimed) and self._executor.start(run.claimed, run.limit)):
            self._slots.release_slot()
            self._outcomes.give_back(run.claimed, why)

    def begun(self, run: Run) -> None:
        """Report that a prefetched job runs."""
        self._outcomes.begun(run)

    def capacity_changed(self) -> None:
        """Request a turn: there is room for a job where there was none."""
        self._slots.turn_due = True
