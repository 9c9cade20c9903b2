"""Where jobs run that were lost again and again: alone, so that what takes down their worker is known to be their doing."""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Sequence

from fusion.runtime.child_process import Child, cause_of, named
from fusion.runtime.loop import Loop
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.settings import Settings
from fusion.store.write.broker import Broker

#: Seconds for which the right is held, between two calls that renew it, and between two that ask for it.
_TTL, _RENEW, _ASK = 20.0, 5.0, 2.0
#: Seconds in which the child may end what it runs when it is to take no more.
_PATIENCE = float("inf")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
#: Seconds after the child's death by which nothing of its jobs runs any more: its fork server sees the end at once.
_SETTLED = 2.0


class Probation:
    """`command`: the command line of a worker that runs one such job after another and nothing else, and ends when there are no more.

    - a worker of one slot needs none: nothing ever runs beside its job. One of more slots starts one, so that the jobs which wait for its
      slots, an OTP say, don't wait for a suspect, nor their slots for its end;
    - one worker of a host has the right to it at a time. Only so can jobs of its other workers that were lost with them not meet again.
    """

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        loop: Loop,
        link: RedisLink,
        log: logging.Logger,
        command: Sequence[str],
        only: bool,
    ) -> None:
        self._settings, self._broker, self._loop, self._link, self._log = settings, broker, loop, link, log
        self._command = list(command)
        self._host = socket.gethostname()
        self.only = only
        #: Nothing runs beside a job of this worker.
        self.alone = only or settings.slots == 1
        #: It may take jobs on probation.
        self.allowed = only
        self._child: Child | None = None
        self._dead_workers: list[tuple[float, str, str, str]] = []
        self._ask_at = self._start_at = 0.0
        self._asked = True
        self._pause = _FIRST_PAUSE

    @property
    def child(self) -> Child | None:
        return self._child

    def due(self) -> None:
        """There may be jobs for it now."""
        self._ask_at, self._asked = 0.0, False

    @property
    def pending(self) -> bool:
        """Whether such jobs run, or nobody knows yet whether there are some."""
        return self._child is not None or not self._asked

    def tend(self, now: float, incarnation: str, sets: Sequence[str], *, busy: bool, taking: bool) -> bool:
        """`sets`: where such jobs may wait. `busy`: a job runs here; `taking`: the worker takes jobs. True if it may take such ones from now on."""
        before = self.allowed
        if self._child is not None:
            self._look_after(self._child, now)
        if self.only or not (sets or self.allowed or self._child or self._dead_workers):
            self._asked = True
            return False
        if not self._link.open(now):
            return False
        try:
            self._bury(now)
            keep = self._child is not None or (self.alone and self.allowed and busy)
            if now >= self._ask_at and (keep or (taking and (self.alone or (self._command and now >= self._start_at)))):
                self._ask(now, incarnation, sets, keep)
        except RedisAway:
            return False
        return self.allowed and not before

    def _ask(self, now: float, incarnation: str, sets: Sequence[str], keep: bool) -> None:
        held = self._link.attempt(lambda: self._broker.hold_probation(self._host, incarnation, _TTL, sets, keep=keep), look=True)
        self._ask_at = now + (_RENEW if held and keep else _ASK)
        self.allowed, self._asked = held and self.alone, True
        if held and not self.alone and self._child is None:
            self._start(now)

    def _start(self, now: float) -> None:
        try:
            child = Child("worker for jobs on probation", self._command, _PATIENCE, own_group=True)
        except OSError as error:
            self._log.error("the worker for jobs on probation can't be started: %s", error.strerror)
            self._start_at = now + _LONGEST_PAUSE
            return
        self._child = child
        self._log.warning("jobs were lost again and again: %s runs them, one after another", child)
        self._loop.watch(child.fileno(), lambda: self._hear(child))

    def _hear(self, child: Child) -> None:
        if not child.listen():
            self._loop.unwatch(child.fileno())

    def _look_after(self, child: Child, now: float) -> None:
        code = child.collect()
        if code is None:
            if now - child.heard > self._settings.hang_timeout and child.told != "SIGKILL":
                child.hung = True
                child.signal(signal.SIGKILL, now)
            return
        self._hear(child)
        self._loop.unwatch(child.fileno())
        child.close()
        self._child = None
        self._ask_at = 0.0
        if not code:
            self._pause = _FIRST_PAUSE
            return
        if child.ready:
            self._pause = _FIRST_PAUSE  # it is its jobs that take it down, and others wait behind them
        why = named(cause_of(child, code))
        self._start_at = now + self._pause
        self._log.error("%s; another starts in %.1f s", why, self._pause)
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)
        if child.name:
            self._dead_workers.append((now + _SETTLED, child.name, child.incarnation, why))

    def _bury(self, now: float) -> None:
        """Give back what a dead child held."""
        while self._dead_workers and now >= self._dead_workers[0][0]:
            _, name, incarnation, why = self._dead_workers[0]
            lease = self._settings.lease
            self._link.attempt(lambda: self._broker.prune(lease, name, incarnation=incarnation, reason=why))  # noqa: B023
            self._dead_workers.pop(0)

    def release(self, *, cold: bool = False) -> None:
        """The worker ends: no more jobs, and with `cold` the one that runs goes back."""
        self._command = []
        if self._child is not None:
            if cold:
                self._child.signal(signal.SIGQUIT, float("inf"))
            else:
                self._child.release(float("inf"))

    def close(self) -> None:
        """The end: a child that has not ended by now does so by itself, as its parent is gone."""
        child, self._child = self._child, None
        if child is None:
            return
        until = time.monotonic() + 3.0
        child.signal(signal.SIGQUIT, until)
        while child.collect() is None and time.monotonic() < until:
            time.sleep(0.01)
        if child.collect() is None:
            child.signal(signal.SIGKILL, until)
        self._loop.unwatch(child.fileno())
        child.close()
