"""Runs jobs alone that were lost again and again. If their worker dies then, they are to blame."""

from __future__ import annotations

import signal
import socket
from collections.abc import Sequence
from functools import partial
from math import inf

from fusion.runtime.child_process import Child, cause_of, named
from fusion.runtime.context import ProcessContext
from fusion.runtime.redis_link import RedisAway
from fusion.runtime.watched_child import WatchedChild

#: Seconds: how long the right to run such jobs is held, between two renewals, and between two requests for it.
_TTL, _RENEW, _ASK = 20.0, 5.0, 2.0
#: Seconds between two checks whether such jobs wait, while none is known.
_WAIT = 0.5
#: Seconds to wait after a start that failed.
_NO_PROCESS = 30.0
#: Seconds after the child's death until all its job processes are gone: its fork server notices the death at once.
_SETTLED = 2.0
#: Seconds a child gets at the worker's end.
_FAREWELL = 3.0


class Probation:
    """Runs jobs on probation, one after another. `command`: the command line of a worker for them; it ends when there are no more.

    - a worker with one slot runs such jobs itself: nothing runs beside them. A worker with more slots starts that other worker. So no job
      that waits for a slot (an OTP, say) waits for a suspect;
    - one worker of a host has the right to it at a time. Otherwise jobs that were lost together could run together again.
    """

    def __init__(self, process: ProcessContext, command: Sequence[str], only: bool) -> None:
        self._process = process
        self._host = socket.gethostname()
        self.watched = WatchedChild(process, "worker for jobs on probation", command, inf, own_group=True)
        #: This worker takes no others.
        self.only = only
        #: True if nothing runs beside a job of this worker.
        self.alone = only or process.settings.slots == 1
        #: True if it may take jobs on probation.
        self.allowed = only
        self._sets: Sequence[str] = ()
        self._dead_workers: list[tuple[float, str, str, str]] = []
        self._ask_at = self._start_at = 0.0
        self._asked = True
        #: When to ask Redis. When to check the child: see `watched`.
        self.next_at = inf

    @property
    def child(self) -> Child | None:
        """The worker for jobs on probation, None while there is none."""
        return self.watched.child

    def due(self, sets: Sequence[str]) -> None:
        """Ask Redis soon: these sets may hold jobs on probation."""
        self._sets = sets
        self._ask_at, self._asked = 0.0, False
        self._set_time()

    @property
    def pending(self) -> bool:
        """True while such jobs run, or while it is not known whether there are any."""
        return self.child is not None or not self._asked

    @property
    def _concerned(self) -> bool:
        return not self.only and bool(self._sets or self.allowed or self.child or self._dead_workers)

    def _set_time(self) -> None:
        self.next_at = self._ask_at if self._concerned else inf if self._asked else 0.0
        if self._dead_workers:
            self.next_at = min(self.next_at, self._dead_workers[0][0])

    def tick(self, now: float, incarnation: str, *, busy: bool, taking: bool) -> bool:
        """Do what is due. `busy`: a job runs here; `taking`: the worker takes jobs. True if it may take jobs on probation from now on."""
        try:
            return self._tick(now, incarnation, busy=busy, taking=taking)
        finally:
            self._set_time()

    def _tick(self, now: float, incarnation: str, *, busy: bool, taking: bool) -> bool:
        before = self.allowed
        if ended := self.watched.ended(now):
            self._bury(*ended, now)
        if not self._concerned:
            self._asked = True
            return False
        if not self._process.link.open(now):
            return False
        try:
            self._recover(now)
            if now >= self._ask_at:
                self._ask(now, incarnation, busy=busy, taking=taking)
        except RedisAway:
            return False
        return self.allowed and not before

    def _ask(self, now: float, incarnation: str, *, busy: bool, taking: bool) -> None:
        keep = self.child is not None or (self.alone and self.allowed and busy)
        can_start = self.alone or (bool(self.watched.command) and now >= self._start_at)
        if not (keep or (taking and can_start)):
            self._ask_at = now + _WAIT
            return
        hold = partial(self._process.broker.hold_probation, self._host, incarnation, _TTL, self._sets, keep=keep)
        held = self._process.link.attempt(hold, look=True)
        self._ask_at = now + (_RENEW if held and keep else _ASK)
        self.allowed, self._asked = held and self.alone, True
        if held and not self.alone and self.child is None:
            if child := self.watched.start(now):
                self._process.log.warning("jobs were lost again and again: %s runs them, one after another", child)
            else:
                self._start_at = now + _NO_PROCESS

    def _bury(self, child: Child, code: int, now: float) -> None:
        self._ask_at = 0.0
        if not code or child.ready:
            self.watched.backoff.reset()  # it was ready, so its jobs killed it: the jobs behind them must not wait
        if not code:
            return
        why, pause = named(cause_of(child, code)), self.watched.backoff.next()
        self._start_at = now + pause
        self._process.log.error("%s; another starts in %.1f s", why, pause)
        if child.name:
            self._dead_workers.append((now + _SETTLED, child.name, child.incarnation, why))

    def _recover(self, now: float) -> None:
        """Give back what a dead child held."""
        while self._dead_workers and now >= self._dead_workers[0][0]:
            _, name, incarnation, why = self._dead_workers[0]
            prune = partial(self._process.broker.prune, self._process.settings.lease, name, incarnation=incarnation, reason=why)
            self._process.link.attempt(prune)
            self._dead_workers.pop(0)

    def release(self, *, cold: bool = False) -> None:
        """Take no more jobs, as the worker ends. With `cold` the running job goes back."""
        self.watched.command = []
        if self.child is not None:
            if cold:
                self.child.signal(signal.SIGQUIT, inf)
            else:
                self.child.release(inf)

    def close(self) -> None:
        """Let go of the child. If it still runs, it ends by itself, as its parent is gone."""
        self.release(cold=True)
        self.watched.close(_FAREWELL)
