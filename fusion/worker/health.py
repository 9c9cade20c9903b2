"""Answers probes: does the worker's loop turn, and can the worker take jobs?"""

from __future__ import annotations

import os
import time

from fusion.executors.base import Executor
from fusion.runtime.membership import Membership
from fusion.runtime.probes import HealthReport
from fusion.runtime.redis_link import RedisLink
from fusion.settings import Settings
from fusion.worker.admission import Admission, Blocked


class Health:
    """One worker's. A suspended fleet stays ready: an operator wants it so, and a roll-out must be able to pass meanwhile."""

    def __init__(
        self, settings: Settings, membership: Membership, link: RedisLink, executor: Executor, admission: Admission
    ) -> None:
        self._settings, self._membership, self._link = settings, membership, link
        self._executor, self._admission = executor, admission
        # Nothing in a round waits longer than for these: the sleep until the next timer, an attempt at Redis.
        self._patience = 2 * max(settings.idle_wait, settings.socket_timeout)
        self._ticked = time.monotonic()

    def tick(self, now: float) -> None:
        """Note that the loop began a round at this time."""
        self._ticked = now

    def live(self) -> HealthReport:
        """Not if the loop has hung: it says so in the round in which it did. One that hangs for good does not answer at all."""
        silent = time.monotonic() - self._ticked
        reasons = [f"the loop did not turn for {silent:.1f} s"] if silent > self._patience else []
        return HealthReport(reasons, {"worker": self._membership.name, "pid": os.getpid()})

    def ready(self) -> HealthReport:
        """Not while it takes no jobs, or Redis is away."""
        blocked = self._admission.blocked
        reasons = [Blocked.RECYCLING.value] if Blocked.RECYCLING in blocked else []
        reasons += self._link.trouble
        if Blocked.NO_EXECUTOR in blocked:
            why = self._executor.unloaded
            reasons.append(f"can't load tasks: {why}" if why else Blocked.NO_EXECUTOR.value)
        if Blocked.THROTTLED in blocked:
            reasons.append(f"{Blocked.THROTTLED.value}: {self._admission.scarce}")
        if Blocked.QUIET in blocked:
            reasons.append(Blocked.QUIET.value)
        facts = {"running": len(self._executor.running), "slots": self._settings.slots, "suspended": Blocked.SUSPENDED in blocked}
        return HealthReport(reasons, {**self.live().facts, **facts})
