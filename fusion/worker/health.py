"""What a probe is told: whether the worker's loop turns, and whether the worker can take jobs."""

from __future__ import annotations

import os
import time

from fusion.executors.base import Executor
from fusion.runtime.job_log import JobLog
from fusion.runtime.membership import Membership
from fusion.runtime.probes import HealthReport
from fusion.runtime.redis_link import RedisLink
from fusion.settings import Settings
from fusion.worker.admission import Admission
from fusion.worker.slots import Slots


class Health:
    """One worker's. A suspended fleet stays ready: an operator wants it so, and a roll-out must be able to pass meanwhile."""

    def __init__(
        self,
        settings: Settings,
        membership: Membership,
        link: RedisLink,
        executor: Executor,
        admission: Admission,
        job_log: JobLog,
        slots: Slots,
    ) -> None:
        self._settings, self._membership, self._link = settings, membership, link
        self._executor, self._admission, self._job_log, self._slots = executor, admission, job_log, slots
        # Nothing in a round waits longer than for these: the sleep until the next timer, an attempt at Redis.
        self._patience = 2 * max(settings.idle_wait, settings.socket_timeout)
        self._ticked = time.monotonic()

    def tick(self, now: float) -> None:
        """The loop begins a round."""
        self._ticked = now

    def live(self) -> HealthReport:
        """A loop that hangs for good does not answer at all; one that has hung says so in the round in which it did."""
        silent = time.monotonic() - self._ticked
        reasons = [f"the loop did not turn for {silent:.1f} s"] if silent > self._patience else []
        return HealthReport(reasons, {"worker": self._membership.name, "pid": os.getpid()})

    def ready(self) -> HealthReport:
        reasons = []
        if self._slots.stopping:
            reasons.append("stopping")
        reasons += self._link.trouble
        if self._executor.server_pid is None:
            reasons.append("no fork server is ready")
        if self._admission.throttled:
            reasons.append(f"memory throttle: {self._admission.throttled}")
        if self._admission.quiet:
            reasons.append("quiet")
        facts = {"running": len(self._executor.running), "slots": self._settings.slots, "suspended": self._job_log.is_suspended}
        return HealthReport(reasons, {**self.live().facts, **facts})
