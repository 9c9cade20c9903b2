"""A worker's relay: started when nobody else brings events to the sinks or delivers callbacks, replaced when it dies, ended with the worker."""

from __future__ import annotations

import logging
import random
import signal
import time
from collections.abc import Sequence

from redis import Redis

from fusion.kernel import defaults
from fusion.runtime.child_process import Child, cause_of, named
from fusion.runtime.loop import Loop
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.settings import Settings
from fusion.store.write.event_broker import EventBroker

#: Seconds between two looks whether a relay is missing. The first comes sooner, but not all workers of a fleet look at once.
_LOOK, _FIRST_LOOK = 5.0, 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
#: One that was ready for this long is healthy: what ends it then is no crash loop.
_HEALTHY = 10.0
#: Seconds in which it may deliver what there is when the worker ends.
_FAREWELL = 5.0


class RelayChild:
    """`command`: the command line of a relay; without one nothing happens. It is needed when a sink of the settings is not served, and when
    callbacks wait and there is none.

    The relay is a process of its own: nothing it does or waits for is felt by the worker. If the worker dies, it ends as well.
    """

    def __init__(
        self, settings: Settings, connection: Redis, loop: Loop, link: RedisLink, log: logging.Logger, command: Sequence[str]
    ) -> None:
        self._settings, self._loop, self._link, self._log = settings, loop, link, log
        self._broker = EventBroker.of(connection, settings)
        self._command = list(command)
        self._lease = min(settings.lease, defaults.RELAY_LEASE)
        self._child: Child | None = None
        self._crashes = 0
        self._bereft = False
        self._look_at = time.monotonic() + _FIRST_LOOK * random.uniform(0.2, 1.0)

    def tend(self, now: float) -> None:
        """See that there is a relay if one is needed."""
        if not self._command:
            return
        if self._child is not None:
            self._look_after(self._child, now)
        elif now >= self._look_at and self._link.open(now):
            self._look_at = now + _LOOK * random.uniform(0.8, 1.0)
            try:
                why = self._link.attempt(self._missing, look=True)
            except RedisAway:
                return
            if why:
                self._start(now, why)

    def _missing(self) -> str:
        """What a relay is needed for; empty if for nothing."""
        # the last heartbeat of one that died here may still count: it says nothing of others
        sinks, within = self._settings.sinks, 0.0 if self._bereft else self._lease
        if sinks and (self._bereft or not self._broker.served(sinks, within)):
            return f"no relay serves the sinks {', '.join(sinks)}"
        return "" if self._broker.callbacks_served(within) else "callbacks wait, and there is no relay"

    def _start(self, now: float, why: str) -> None:
        try:
            child = Child("relay", self._command, _FAREWELL)
        except OSError as error:
            self._log.error("the relay can't be started: %s", error.strerror)
            self._put_off(now)
            return
        self._child, self._bereft = child, False
        self._log.info("%s: %s is started", why, child)
        self._loop.watch(child.fileno(), lambda: self._hear(child))

    def _hear(self, child: Child) -> None:
        if not child.listen():
            self._loop.unwatch(child.fileno())

    def _look_after(self, child: Child, now: float) -> None:
        code = child.collect()
        if code is not None:
            self._bury(child, code, now)
        elif now - child.heard > self._settings.hang_timeout and child.told != "SIGKILL":
            child.hung = True
            child.signal(signal.SIGKILL, now)

    def _bury(self, child: Child, code: int, now: float) -> None:
        self._hear(child)
        self._loop.unwatch(child.fileno())
        child.close()
        self._child, self._bereft = None, True
        if child.ready_at is not None and now - child.ready_at > _HEALTHY:
            self._crashes = 0
        pause = self._put_off(now)
        if code:
            self._log.error("%s; another starts in %.1f s", named(cause_of(child, code)), pause)

    def _put_off(self, now: float) -> float:
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._crashes, 20))
        self._crashes += 1
        self._look_at = now + pause
        return pause

    def close(self) -> None:
        """The worker ends. Its relay delivers what there is, and is waited for a little."""
        child, self._child, self._command = self._child, None, []
        if child is None:
            return
        until = time.monotonic() + _FAREWELL
        child.release(until)
        while child.collect() is None and time.monotonic() < until:
            time.sleep(0.01)
        if child.collect() is None:
            child.signal(signal.SIGKILL, until)
        self._loop.unwatch(child.fileno())
        child.close()
