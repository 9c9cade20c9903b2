"""Jobs on their way to the horses, and what comes back from there on its way to the ledger."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from fnmatch import fnmatchcase

from fusion.execution.completion import Decision
from fusion.failpoints import failpoint
from fusion.process import deaths, verdict
from fusion.process.base import Loop
from fusion.process.envelope import Envelopes
from fusion.process.journal import Journal
from fusion.process.ledger import Ledger
from fusion.process.link import RedisAway, RedisLink
from fusion.process.messages import HorseExited
from fusion.process.pool import Terms
from fusion.process.stable import Run
from fusion.process.stables import Stables
from fusion.process.task_logs import TaskLogs
from fusion.settings import Settings
from fusion.store.broker import Broker
from fusion.store.records import Claimed

#: The lowest priority for each slot that may take a job now.
Floors = Callable[[], list[int]]


class Handout:
    """Gives each claimed job to a horse, or back; whatever becomes of it is an outcome in the ledger, exactly one."""

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        log: logging.Logger,
        broker: Broker,
        link: RedisLink,
        ledger: Ledger,
        journal: Journal,
        task_logs: TaskLogs,
        floors: Floors,
        stopping: Callable[[], bool],
    ) -> None:
        self._settings, self._broker, self._link = settings, broker, link
        self._ledger, self._journal, self._task_logs = ledger, journal, task_logs
        self._floors, self._stopping = floors, stopping
        self.envelopes = Envelopes(settings, log)
        terms = Terms(settings.max_jobs_per_horse, settings.max_horse_rss, self._on_back)
        self.stables = Stables(settings, loop, log, self._on_frame, self._on_death, terms)

    def hand_out(self, claimed: Claimed) -> bool:
        """Whether a horse has it now."""
        failpoint("claim.after_reply")
        if not self._floors():
            return self._give_back(claimed, "no free process")
        if self.envelopes.keyring and (refused := self.envelopes.refuse(claimed)):
            self._ledger.add(claimed, refused, 0.0)
            return False
        if self._isolated(claimed.queue):
            claimed.fields[b"isolate"] = b"1"
        if not claimed.fields.get(b"timeout"):  # RQ leaves it out for its default
            claimed.fields[b"timeout"] = b"%g" % self._settings.job_timeout
        try:
            limit = verdict.time_limit(claimed.fields, self._settings.timeout_grace)
        except ValueError as error:
            self._ledger.add(claimed, verdict.no_time_limit(error), 0.0)
            return False
        self._journal.started(claimed)
        if self.stables.hand_out(claimed, limit) is None:
            return self._give_back(claimed, "no process for it")
        failpoint("handout.after")
        return True

    def _isolated(self, queue: str) -> bool:
        return any(fnmatchcase(queue, name) for name in self._settings.isolate_queues or ())

    def _give_back(self, claimed: Claimed, why: str) -> bool:
        self._ledger.add(claimed, Decision("release", why), 0.0)
        return False

    def _on_back(self, run: Run, why: str) -> None:
        """A job that no horse has begun: another takes it, or Redis has it back."""
        if self._floors() and self.stables.hand_out(run.claimed, run.limit) is not None:
            return
        self._give_back(run.claimed, why)

    def _on_frame(self, run: Run, frame: dict[bytes, bytes]) -> None:
        if frame.get(b"kind") == b"meta":
            self._save_meta(run.claimed, frame.get(b"meta", b"{}"))
            return
        if self._task_logs.take(run, frame):
            return
        failpoint("outcome.received")
        self._ledger.add(run.claimed, verdict.of_frame(run.claimed.fields, frame), verdict.elapsed(frame))

    def _on_death(self, run: Run, exited: HorseExited | None) -> None:
        if run.killed in ("cold", "lost"):
            return  # what becomes of the job is decided elsewhere: `deregister` gives it back, or another worker has it
        stopping, grace = self._stopping(), self._settings.timeout_grace
        decision = verdict.guarded(lambda: deaths.decide(run, exited, stopping=stopping, grace=grace))
        self._ledger.add(run.claimed, decision, time.monotonic() - run.began)

    def _save_meta(self, claimed: Claimed, meta: bytes) -> None:
        if not self._link.open(time.monotonic()):
            return
        try:
            self._link.attempt(lambda: self._broker.save_meta(claimed.id, meta, claimed.execution_id))
        except RedisAway:
            pass  # the outcome carries the last meta again
