"""Jobs on their way to processes, and what comes back from there."""

from __future__ import annotations

from dataclasses import dataclass

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
_LINES = (b"log", b"meta", b"report", b"stands")


@dataclass(frozen=True)
class Stations:
    """The parts of a worker that a job passes, or what its run sends."""

    slots: Slots
    envelopes: EnvelopeCheck
    stops: Stops
    gathered: Gathered
    outcomes: Outcomes
    task_logs: TaskLogs
    reports: Reports
    job_log: JobLog


class Dispatcher:
    """Gives each claimed job to the executor, or back; as the executor's listener passes on what becomes of it: exactly one outcome."""

    def __init__(self, executor: Executor, stations: Stations) -> None:
        self._executor, self._at = executor, stations
        executor.listen(self)
        stations.gathered.attach(stations.outcomes, self.start)

    def start(self, claimed: Claimed) -> None:
        """Start a claimed job, or let it wait behind another, or for others of its call; else it goes back."""
        failpoint("claim.after_reply")
        slots, executor = self._at.slots, self._executor
        idle = self._at.gathered.fits(claimed) or slots.fits(claimed)  # its slot may be gone since it was asked for
        if not (idle or slots.may_wait(claimed)):
            self._at.outcomes.give_back(claimed, "no free process")
            return
        if self._at.stops.is_told(claimed):
            self._at.outcomes.stopped(claimed)
            return
        limit = self._at.envelopes.open(claimed)
        if isinstance(limit, Decision):
            self._at.outcomes.refuse(claimed, limit)
            return
        self._at.job_log.started(claimed)
        if idle and self._at.gathered.take(claimed, limit):
            slots.took(1)
            return
        if (executor.start(claimed, limit) if idle else executor.prefetch(claimed, limit, slots.lanes)) is None:
            self._at.outcomes.give_back(claimed, "no process for it")
            return
        slots.took(1)
        failpoint("dispatch.after")

    def renew_leases(self, membership: Membership, now: float) -> None:
        """Renew the leases of everything this worker holds, outcomes that wait for Redis included; kill what it holds no more, stop
        what is to stop."""
        runs = [*self._at.gathered.runs()]
        held = [(c.id, c.execution_id) for c in (*(run.claimed for run in runs), *self._at.outcomes.waiting())]
        for run, answer in zip(runs, membership.beat(now, held), strict=False):
            if answer == "lost":
                self._at.job_log.lost(run.claimed)
                self._at.gathered.lost(run)
            elif answer == "stopped":
                self._at.gathered.stop(run)

    def frame(self, run: Run, frame: dict[bytes, bytes]) -> None:
        """A run sent a log line, its meta, a report, or its outcome; or one of those that share it did."""
        if frame.get(b"kind") == b"member":
            if (opened := self._at.gathered.opened(run, frame)) is None:
                return
            run, frame = opened
        elif frame.get(b"kind") not in _LINES and self._at.gathered.over(run, frame):
            return
        if frame.get(b"kind") == b"report":
            self._at.reports.take(run, frame)
        elif frame.get(b"kind") == b"stands":
            self._at.outcomes.stands(run, frame)
        elif not self._at.task_logs.take(run, frame):
            failpoint("outcome.received")
            self._at.outcomes.received(run, self._at.reports.left(run) | frame)

    def ended(self, run: Run, death: Death) -> None:
        """A run is over without an outcome of its own."""
        if self._at.gathered.ended(run, death):
            return
        if run.killed is not KillCause.LOST and (
            run.stands is not None or run.killed is not KillCause.COLD
        ):  # of others nothing is told
            self._at.outcomes.died(run, death, self._at.reports.left(run))

    def returned(self, run: Run, why: str) -> None:
        """A run has not begun: another process takes the job, or Redis has it back."""
        if self._at.gathered.returned(run, why):
            return
        if not (self._at.slots.fits(run.claimed) and self._executor.start(run.claimed, run.limit)):
            self._at.slots.took(-1)
            self._at.outcomes.give_back(run.claimed, why)

    def begun(self, run: Run) -> None:
        """A prefetched job runs for longer than a moment."""
        self._at.outcomes.begun(run)

    def capacity_changed(self) -> None:
        """There is room for a job where there was none."""
        self._at.slots.turn_wanted = True
