"""Jobs on their way to the horses, and what comes back from there on its way to the outbox."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from fnmatch import fnmatchcase

from fusion.execution.completion import Decision
from fusion.executors import readings
from fusion.executors.fork import Run
from fusion.executors.generations import ExecutorGenerations
from fusion.executors.warm_pool import Terms
from fusion.forkserver.messages import HorseExited
from fusion.kernel.failpoints import failpoint
from fusion.runtime.job_log import JobLog
from fusion.runtime.loop import Loop
from fusion.runtime.membership import Membership
from fusion.runtime.outbox import Outbox
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.settings import Settings
from fusion.store.layout.records import Claimed
from fusion.store.write.broker import Broker
from fusion.worker import outcomes
from fusion.worker.admission import ANY
from fusion.worker.envelope import EnvelopeCheck
from fusion.worker.task_logs import TaskLogs

#: The lowest priority for each slot that may take a job now.
Floors = Callable[[], list[int]]


class Dispatcher:
    """Gives each claimed job to a horse, or back; whatever becomes of it is an outcome in the outbox, exactly one."""

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        log: logging.Logger,
        broker: Broker,
        link: RedisLink,
        outbox: Outbox,
        job_log: JobLog,
        task_logs: TaskLogs,
        floors: Floors,
        stopping: Callable[[], bool],
        took: Callable[[int], None],
        lacks: Callable[[str, str, float], None],
    ) -> None:
        """`took`: told of jobs that went to a horse, and by -1 of one that came back. `lacks`: of a task that is not there, and why."""
        self._settings, self._broker, self._link = settings, broker, link
        self._outbox, self._job_log, self._task_logs = outbox, job_log, task_logs
        self._floors, self._stopping, self._took, self._lacks = floors, stopping, took, lacks
        #: Horses that jobs of any class may wait in.
        self._lanes = settings.slots - settings.reserve_high
        self.envelopes = EnvelopeCheck(settings, log)
        terms = Terms(settings.max_jobs_per_horse, settings.max_horse_rss, settings.claim_ahead, self._on_back, outbox.begun)
        self.executors = ExecutorGenerations(settings, loop, log, self._on_frame, self._on_death, terms)

    def room(self, floors: list[int]) -> int:
        """Jobs that may be claimed ahead, to wait behind others, besides one for each free slot."""
        return 0 if self._stopping() else self.executors.room(self._lanes, floors.count(ANY))

    def hand_out(self, claimed: Claimed) -> None:
        """Give a job to a horse, or let it wait in one; else it goes back."""
        failpoint("claim.after_reply")
        idle = self._fits(claimed) if claimed.ahead else bool(self._floors())
        if not (idle or claimed.ahead):
            self._give_back(claimed, "no free process")
            return
        limit = self._admit(claimed)
        if limit is None:
            return
        self._job_log.started(claimed)
        if (self.executors.hand_out(claimed, limit) if idle else self.executors.put_behind(claimed, limit, self._lanes)) is None:
            self._give_back(claimed, "no process for it")
            return
        self._took(1)
        failpoint("dispatch.after")

    def tell(self, membership: Membership, now: float) -> None:
        """Renew the leases of everything this worker holds, outcomes that wait for Redis included; kill what it holds no more."""
        runs = [run for run in (*self.executors.runs, *self.executors.waiting) if not run.killed]
        held = [(c.id, c.execution_id) for c in (*(run.claimed for run in runs), *self._outbox.held())]
        for run, answer in zip(runs, membership.beat(now, held), strict=False):
            if answer == "lost":
                self._job_log.lost(run.claimed)
                self.executors.kill(run, "lost")

    def _fits(self, claimed: Claimed) -> bool:
        """Whether a slot is free for a job of its class."""
        floors = self._floors() if self.executors.free else []
        return bool(floors) and readings.priority(claimed.fields) >= floors[0]

    def _admit(self, claimed: Claimed) -> float | None:
        """The seconds it may run; None if it may not, which is an outcome."""
        if self.envelopes.keyring and (refused := self.envelopes.refuse(claimed)):
            self._outbox.add(claimed, refused, 0.0)
            return None
        if self._isolated(claimed.queue):
            claimed.fields[b"isolate"] = b"1"
        if not claimed.fields.get(b"timeout"):  # RQ leaves it out for its default
            claimed.fields[b"timeout"] = str(self._settings.job_timeout).encode()
        try:
            return readings.time_limit(claimed.fields, self._settings.timeout_grace)
        except ValueError as error:
            self._outbox.add(claimed, outcomes.no_time_limit(error), 0.0)
            return None

    def _isolated(self, queue: str) -> bool:
        names = self._settings.isolate_queues
        return names is not None and any(fnmatchcase(queue, name) for name in names)

    def _give_back(self, claimed: Claimed, why: str) -> None:
        self._outbox.add(claimed, Decision("release", why), 0.0)

    def _on_back(self, run: Run, why: str) -> None:
        """A job that no horse has begun: another takes it, or Redis has it back."""
        if self._fits(run.claimed) and self.executors.hand_out(run.claimed, run.limit) is not None:
            return
        self._took(-1)
        self._give_back(run.claimed, why)

    def _on_frame(self, run: Run, frame: dict[bytes, bytes]) -> None:
        if frame.get(b"kind") == b"meta":
            self._save_meta(run.claimed, frame.get(b"meta", b"{}"))
            return
        if self._task_logs.take(run, frame):
            return
        failpoint("outcome.received")
        fields, elapsed = run.claimed.fields, readings.elapsed(frame)
        decision, ago = outcomes.of_frame(fields, frame), readings.signaled(frame)
        if decision.kind == "held":
            self._lacks(str(decision.fields["task"]), decision.reason, time.monotonic())
        if ago is None or decision.kind not in ("failed", "retry") or fields.get(b"on_lost") == b"fail":
            self._outbox.add(run.claimed, decision, elapsed)
        else:
            self._outbox.add_struck(run.claimed, decision, elapsed, outcomes.struck(decision), time.monotonic() - ago)

    def _on_death(self, run: Run, exited: HorseExited | None) -> None:
        if run.killed in ("cold", "lost"):
            return  # what becomes of the job is decided elsewhere: `deregister` gives it back, or another worker has it
        stopping, grace = self._stopping(), self._settings.timeout_grace
        decision = outcomes.guarded(lambda: outcomes.of_death(run, exited, stopping=stopping, grace=grace))
        self._outbox.add(run.claimed, decision, time.monotonic() - run.began)

    def _save_meta(self, claimed: Claimed, meta: bytes) -> None:
        if not self._link.open(time.monotonic()):
            return
        try:
            self._link.attempt(lambda: self._broker.save_meta(claimed.id, meta, claimed.execution_id))
        except RedisAway:
            pass  # the outcome carries the last meta again
