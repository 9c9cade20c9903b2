"""The supervisor: starts the processes of a service, watches them, replaces what dies, and ends them in order. It runs no job itself."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from fusion.process.base import Loop
from fusion.process.child import Child, describe_exit
from fusion.process.link import RedisAway, RedisLink
from fusion.process.linux import Children, become_subreaper
from fusion.process.signals import Signals
from fusion.process.systemd import Notifier
from fusion.settings import Settings
from fusion.store.broker import Broker

log = logging.getLogger("fusion.supervisor")

_TICK = 0.25
#: A child that lived this long is healthy: the pause before its replacement starts over.
_HEALTHY = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
#: Seconds a replacement has to become ready during a rolling restart, before the restart is called off.
_ROLL_LIMIT = 60.0
#: Seconds a dead worker's own children get to end by themselves; they see its end at once.
_ORPHAN_LIMIT = 0.5
#: Seconds between QUIT and KILL.
_QUIT_LIMIT = 10.0


@dataclass(slots=True)
class _Post:
    """A place that is to be filled: what runs there, and when the next may start."""

    label: str
    arguments: Sequence[str]
    child: Child | None = None
    start_at: float = 0.0
    pause: float = _FIRST_PAUSE
    leaving: list[Child] = field(default_factory=list)


class Supervisor:
    """Keeps `posts` (label, arguments of the command line) filled.

    - a child that dies is replaced, at once the first time, then with growing pauses; what a dead worker held is given back at once;
    - a child that is silent for `hang_limit` seconds is killed and replaced;
    - TERM or INT: children get TERM, `shutdown_timeout` seconds to finish, then QUIT; twice: both TERMs are passed on; QUIT: QUIT;
    - HUP: one child after the other is replaced, each only when its successor is ready;
    - if the supervisor itself dies, its children notice and finish what they run (`report`).
    """

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        posts: Sequence[tuple[str, Sequence[str]]],
        *,
        shutdown_timeout: float,
        hang_limit: float,
        notifier: Notifier | None = None,
    ) -> None:
        self._settings, self._broker = settings, broker
        self._posts = [_Post(label, arguments) for label, arguments in posts]
        self._shutdown_timeout, self._hang_limit = shutdown_timeout, hang_limit
        self._notifier = notifier or Notifier()
        self._loop, self._signals, self._link = Loop(), Signals(), RedisLink(log)
        self._stopping = self._forced = self._announced = False
        self._stops_passed = 0
        self._to_prune: list[str] = []
        self._roll: list[_Post] = []
        self._roll_until = 0.0
        self._ping_at = 0.0

    def run(self) -> int:
        """Until told to stop and every child has ended. 0 if none had to be killed for it."""
        become_subreaper()  # a dead worker's fork server comes to us: only when it is gone are the worker's jobs given back
        self._children = Children()
        self._signals.install()
        self._loop.watch(self._signals.fileno(), self._signals.drain)
        previous = signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the loop
        log.info("supervisor (pid %d) keeps %s", os.getpid(), ", ".join(post.label for post in self._posts))
        try:
            while self._step():
                self._loop.run_once(_TICK)
        finally:
            signal.signal(signal.SIGCHLD, previous)
            self._signals.restore()
        log.info("supervisor ended")
        return 1 if self._forced else 0

    @property
    def _all(self) -> list[Child]:
        return [child for post in self._posts for child in (post.child, *post.leaving) if child]

    def _step(self) -> bool:
        now = time.monotonic()
        self._obey_signals(now)
        for post in self._posts:
            self._look_after(post, now)
        self._prune(now)
        self._continue_roll(now)
        self._tell_systemd(now)
        return not (self._stopping and not self._all and not self._to_prune)

    # -- children

    def _look_after(self, post: _Post, now: float) -> None:
        for child in [c for c in (post.child, *post.leaving) if c]:
            code = child.collect()
            if code is not None:
                self._bury(post, child, code, now)
            elif now > child.stop_by:
                self._insist(child, now)
            elif now - child.heard > self._hang_limit and child.told != signal.SIGKILL:
                log.error("%s (pid %d) gave no sign of life for %.0f s and is killed", child.label, child.pid, now - child.heard)
                child.signal(signal.SIGKILL)
        if post.child is None and not self._stopping and now >= post.start_at:
            self._start(post)

    def _start(self, post: _Post) -> None:
        child = post.child = Child(post.label, post.arguments)
        self._loop.watch(child.fileno(), lambda: self._hear(child))

    def _hear(self, child: Child) -> None:
        was_ready = child.ready
        if not child.listen():
            self._loop.unwatch(child.fileno())
        if child.ready and not was_ready:
            log.info("%s (pid %d, %s) is ready", child.label, child.pid, child.name)

    def _bury(self, post: _Post, child: Child, code: int, now: float) -> None:
        self._hear(child)
        self._loop.unwatch(child.fileno())
        child.close()
        if child is not post.child:
            post.leaving.remove(child)
        else:
            post.child = None
            post.pause = _FIRST_PAUSE if now - child.started > _HEALTHY else min(_LONGEST_PAUSE, post.pause * 2)
            post.start_at = now + post.pause
        expected = child.told is not None and code == 0
        say = log.info if expected or self._stopping else log.error
        again = "" if self._stopping or post.child is not None else f"; a new one in {post.pause:.1f} s"
        say("%s (pid %d) %s%s", child.label, child.pid, describe_exit(code), again)
        if code != 0 and child.name:
            self._end_orphans()
            self._to_prune.append(child.name)

    def _end_orphans(self) -> None:
        """Wait for what a dead worker left behind: its fork server kills its horses and goes by itself."""
        mine = {child.pid for child in self._all}
        until = time.monotonic() + _ORPHAN_LIMIT
        while orphans := [pid for pid in self._children.pids() if pid not in mine]:
            for pid in orphans:
                if time.monotonic() > until:
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.002)

    def _prune(self, now: float) -> None:
        """Give back what dead workers held; Redis may be away, so until it has answered."""
        while self._to_prune and self._link.open(now):
            name = self._to_prune[0]
            try:
                ((_, jobs),) = self._link.attempt(partial(self._broker.prune, self._settings.lease, name))
            except RedisAway:
                return
            self._to_prune.pop(0)
            if jobs:
                log.warning("%d job(s) of %s went back to their queues", jobs, name)

    # -- stopping and restarting

    def _obey_signals(self, now: float) -> None:
        if self._signals.quit and not self._forced:
            self._forced = True
            self._stop(now, signal.SIGQUIT, "at once")
        elif self._signals.stops > self._stops_passed:
            self._stops_passed += 1
            self._stop(now, signal.SIGTERM, "when running jobs are done" if self._stops_passed == 1 else "cold")
        if self._signals.reload:
            self._signals.reload = False
            if not self._stopping:
                log.info("rolling restart")
                self._roll = list(self._posts)
                self._next_in_roll(now)

    def _stop(self, now: float, number: int, how: str) -> None:
        log.info("stopping %d process(es), %s", len(self._all), how)
        self._notifier.send(STOPPING=1)
        self._stopping = True
        for child in self._all:
            child.signal(number)
            child.stop_by = now + (self._shutdown_timeout if number == signal.SIGTERM else _QUIT_LIMIT)

    def _insist(self, child: Child, now: float) -> None:
        number = signal.SIGKILL if child.told == signal.SIGQUIT else signal.SIGQUIT
        log.warning("%s (pid %d) has not ended in time: %s", child.label, child.pid, signal.Signals(number).name)
        self._forced = True
        child.signal(number)
        child.stop_by = now + _QUIT_LIMIT

    def _next_in_roll(self, now: float) -> None:
        if self._roll:
            post = self._roll[0]
            if post.child is not None:
                post.leaving.append(post.child)
            self._start(post)
            self._roll_until = now + _ROLL_LIMIT

    def _continue_roll(self, now: float) -> None:
        if not self._roll or self._stopping:
            return
        post = self._roll[0]
        if post.child is not None and post.child.ready:
            for old in post.leaving:
                if old.told is None:
                    old.signal(signal.SIGTERM)
                    old.stop_by = now + self._shutdown_timeout
            if not post.leaving:
                self._roll.pop(0)
                self._next_in_roll(now)
        elif now > self._roll_until:
            log.error(
                "rolling restart called off: %s is not ready after %.0f s; the others stay as they are", post.label, _ROLL_LIMIT
            )
            self._roll.clear()
            self._keep_old(post)

    def _keep_old(self, post: _Post) -> None:
        if post.leaving:
            failed, post.child = post.child, post.leaving.pop()
            if failed is not None:
                failed.signal(signal.SIGQUIT)
                failed.stop_by = time.monotonic() + _QUIT_LIMIT
                post.leaving.append(failed)

    # -- systemd

    def _tell_systemd(self, now: float) -> None:
        ready = sum(child.ready for child in self._all)
        if not self._announced and ready == len(self._posts):
            self._announced = True
            self._notifier.send(READY=1, STATUS=f"{ready} process(es) ready")
        every = self._notifier.watchdog_every
        if every is not None and now >= self._ping_at:
            self._ping_at = now + every
            states = [child.state for child in self._all]
            self._notifier.send(WATCHDOG=1, STATUS=", ".join(f"{states.count(s)} {s}" for s in sorted(set(states))))
