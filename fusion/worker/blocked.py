"""Tracks the blocked jobs that one worker may take, and the tasks that it lacks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fusion.kernel import defaults
from fusion.runtime.backoff import Backoff
from fusion.runtime.served_queues import ServedQueues
from fusion.store.layout.records import ClaimFilter
from fusion.worker.probation import Probation

#: Seconds before a missing task is tried again: the first pause, and the longest. Each is twice the one before.
_FIRST_PAUSE, _LONGEST_PAUSE = defaults.HOLD_INTERVAL, 8 * defaults.HOLD_INTERVAL
#: Missing tasks that one turn sends to Redis.
_MOST = 256
HELD, PROBATION = "held", "probation"
_is_task = re.compile(r"[A-Za-z0-9_.]{1,200}").fullmatch


@dataclass(slots=True)
class _Lack:
    why: str
    until: float
    backoff: Backoff


@dataclass(frozen=True, slots=True)
class _Set:
    """One set of blocked jobs. `task`: the task that its jobs wait for, if they wait for one."""

    name: str
    kind: str
    queue: str
    task: str


class BlockedWork:
    """Jobs of a task that some worker lacks are blocked, and taken from there by the workers that have it.

    - a worker learns that a task is missing by running a job of it. That result holds for a while: other jobs of the task start no process;
    - a new fork server may have other code, so the missing tasks of the one before are forgotten.
    """

    def __init__(self, served_queues: ServedQueues, probation: Probation) -> None:
        self._served_queues, self._probation = served_queues, probation
        self._known = ""
        self._sets: list[_Set] = []
        self._lacking: dict[str, _Lack] = {}

    def update(self, waits: tuple[str, list[str]]) -> None:
        """Replace the sets of blocked jobs with the list from Redis."""
        self._known, names = waits
        self._sets = [_Set(name, *(*name.split(":", 2), "")[:3]) for name in names if ":" in name]

    def lacks(self, task: str, why: str, now: float) -> None:
        """Note that a process found no such task here."""
        if _is_task(task):
            before = self._lacking.pop(task, None)
            backoff = before.backoff if before else Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
            self._lacking[task] = _Lack(why, now + backoff.next(), backoff)
            while len(self._lacking) > _MOST:
                del self._lacking[next(iter(self._lacking))]

    def forget_missing(self) -> None:
        """Let jobs of all tasks run again: other code is loaded."""
        self._lacking.clear()

    def lacking(self, now: float) -> dict[str, str]:
        """Tasks that were found missing a short time ago, and why."""
        return {task: lack.why for task, lack in self._lacking.items() if now < lack.until}

    def held(self, now: float) -> Sequence[str]:
        """Sets of jobs whose tasks this worker may have, of its queues."""
        return [one.name for one in self._of(HELD) if one.task not in self._lacking or now >= self._lacking[one.task].until]

    @property
    def on_probation(self) -> list[str]:
        """Sets of jobs that are to run alone, of its queues."""
        return [one.name for one in self._of(PROBATION)]

    def _of(self, kind: str) -> list[_Set]:
        return [one for one in self._sets if one.kind == kind and self._served_queues.serves(one.queue)]

    def claim_filter(self, now: float) -> ClaimFilter:
        """Return which blocked jobs a turn may claim, and which tasks are missing here."""
        probation = self._probation
        if not (self._sets or self._lacking):
            return ClaimFilter(self._known, (), {}, probation.alone, probation.only)
        sets = () if probation.only else self.held(now)
        sets = (*sets, *(self.on_probation if probation.allowed else ()))
        return ClaimFilter(self._known, sets, self.lacking(now) if self._lacking else {}, probation.alone, probation.only)

    def bells(self, now: float) -> Sequence[str]:
        """Return the queues and sets to wait for."""
        probation = self._probation
        if not (self._sets or probation.only):
            return self._served_queues.bells
        own = () if probation.only else (*self._served_queues.bells, *self.held(now))
        return [*own, *(self.on_probation if probation.allowed else ())]
