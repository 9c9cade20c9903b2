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
    """The health of one worker. A suspended worker stays ready: an operator suspended it, and a roll-out must still succeed."""

    def __init__(
        self, settings: Settings, membership: Membership, link: RedisLink, executor: Executor, admission: Admission
    ) -> None:
        self._settings, self._membership, self._link = settings, membership, link
        self._executor, self._admission = executor, admission
        # The longest waits of one round: the sleep until the next timer, and one attempt to reach Redis.
        self._patience = 2 * max(settings.idle_wait, settings.socket_timeout)
        self._ticked = time.monotonic()

    def tick(self, now: float) -> None:
        """Note that the loop began a round at this time."""
        self._ticked = now

    def live(self) -> HealthReport:
        """Report whether the loop turns. A long pause is reported once the loop turns again; a loop that hangs for good does not answer."""
        silent = time.monotonic() - self._ticked
        reasons = [f"the loop did not turn for {silent:.1f} s"] if silent > self._patience else []
        return HealthReport(reasons, {"worker": self._membership.name, "pid": os.getpid()})

    def ready(self) -> HealthReport:
        """Report whether the worker takes jobs and Redis answers."""
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
