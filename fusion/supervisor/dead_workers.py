"""Cleans up after dead workers: ends the processes that they left, then gives their jobs back."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Set
from dataclasses import dataclass
from functools import partial

from fusion.kernel.linux import Children
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.store.write.broker import Broker

#: Seconds in which a dead worker's fork server must kill its horses and end; it notices the death at once.
_ORPHAN_LIMIT = 0.5
#: Seconds after which the jobs must wait for their leases: a process that can't be killed may still run one.
_GIVE_UP = 5.0


@dataclass(frozen=True)
class _DeadWorker:
    name: str
    incarnation: str
    reason: str
    since: float


class DeadWorkers:
    """Gives back the jobs of dead workers, as soon as their processes have ended and Redis answers.

    Create it before the first child: it ignores children that exist already. It needs `become_subreaper`, so that this process adopts
    orphans.
    """

    def __init__(self, broker: Broker, lease: float, log: logging.Logger) -> None:
        self._broker, self._lease, self._log = broker, lease, log
        self._link = RedisLink(log)
        self._children = Children()
        self._others = frozenset(self._children.pids())
        self._waiting: list[_DeadWorker] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, name: str, incarnation: str, reason: str, now: float) -> None:
        """Note a worker that died, and why."""
        self._waiting.append(_DeadWorker(name, incarnation, reason, now))

    def tick(self, now: float, living: Set[int]) -> None:
        """Reap orphans, end those of dead workers, then give back the jobs of these workers. `living`: pids of the supervisor's
        children."""
        left = self._sweep(living, kill=bool(self._waiting) and now > self._waiting[0].since + _ORPHAN_LIMIT)
        while self._waiting and (not left or now > self._waiting[0].since + _GIVE_UP):
            dead = self._waiting[0]
            if left:
                self._log.error("process(es) %s of a dead worker can't be killed: its jobs wait for their leases", left)
            elif not self._give_back(dead, now):
                return
            self._waiting.pop(0)

    def _sweep(self, living: Set[int], *, kill: bool) -> list[int]:
        """Return the orphans that still run."""
        clean = 0
        while clean < 2:  # an ended process leaves its children to us, and reading the list is not atomic: check again
            orphans = [pid for pid in self._children.pids() if pid not in living and pid not in self._others]
            clean = 0 if orphans else clean + 1
            if left := [pid for pid in orphans if not self._end(pid, kill=kill)]:
                return left
        return []

    def _end(self, pid: int, *, kill: bool) -> bool:
        """Reap an orphan that has ended. True if it is gone."""
        try:
            if kill:
                os.kill(pid, signal.SIGKILL)
            return os.waitpid(pid, os.WNOHANG)[0] == pid
        except (ProcessLookupError, ChildProcessError):
            return True

    def _give_back(self, dead: _DeadWorker, now: float) -> bool:
        if not self._link.open(now):
            return False
        call = partial(self._broker.prune, self._lease, dead.name, incarnation=dead.incarnation, reason=dead.reason)
        try:
            found = self._link.attempt(call)
        except RedisAway:
            return False
        for name, jobs in found:
            if jobs:
                self._log.warning("%d job(s) of %s went back: %s", jobs, name, dead.reason)
        return True
