"""A worker's relay: started when nobody else brings events to the sinks or delivers callbacks, replaced when it dies, ended with the worker."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from math import inf

from fusion.kernel import defaults
from fusion.runtime.child_process import Child, cause_of, named
from fusion.runtime.context import ProcessContext
from fusion.runtime.redis_link import RedisAway
from fusion.runtime.watched_child import WatchedChild
from fusion.store.write.event_broker import EventBroker

#: Seconds between two checks whether a relay is missing. The first comes sooner, but not all workers of a fleet ask at once.
_CHECK, _FIRST_CHECK = 5.0, 1.0
#: One that was ready for this long is healthy: what ends it then is no crash loop.
_HEALTHY = 10.0
#: Seconds in which it may deliver what there is when the worker ends.
_FAREWELL = 5.0


class RelayChild:
    """`command`: the command line of a relay; without one nothing happens. It is needed when a sink of the settings is not served, and when
    callbacks wait and there is none.

    The relay is a process of its own: nothing it does or waits for is felt by the worker. If the worker dies, it ends as well.
    """

    def __init__(self, process: ProcessContext, command: Sequence[str]) -> None:
        self._process = process
        self._broker = EventBroker.of(process.broker.connection, process.settings)
        self._watched = WatchedChild(process, "relay", command, _FAREWELL)
        self._lease = min(process.settings.lease, defaults.RELAY_LEASE)
        self._bereft = False
        self._check_at = time.monotonic() + _FIRST_CHECK * random.uniform(0.2, 1.0)

    @property
    def next_at(self) -> float:
        """When the relay is to be seen after, or Redis to be asked for one."""
        if not self._watched.command:
            return inf
        return self._watched.next_at if self._watched.child else max(self._check_at, self._process.link.retry_at)

    def tick(self, now: float) -> None:
        """Start a relay if one is needed; see to what became of the last."""
        if not self._watched.command:
            return
        if self._watched.child is not None:
            if ended := self._watched.ended(now):
                self._bury(*ended, now)
        elif now >= self._check_at and self._process.link.open(now):
            self._check_at = now + _CHECK * random.uniform(0.8, 1.0)
            try:
                why = self._process.link.attempt(self._missing, look=True)
            except RedisAway:
                return
            if why:
                self._start(now, why)

    def _missing(self) -> str:
        """Ask what a relay is needed for; empty if for nothing."""
        # the last heartbeat of one that died here may still count: it says nothing of others
        sinks, within = self._process.settings.sinks, 0.0 if self._bereft else self._lease
        if sinks and (self._bereft or not self._broker.served(sinks, within)):
            return f"no relay serves the sinks {', '.join(sinks)}"
        return "" if self._broker.callbacks_served(within) else "callbacks wait, and there is no relay"

    def _start(self, now: float, why: str) -> None:
        child = self._watched.start(now)
        if child is None:
            self._check_at = now + self._watched.backoff.next()
            return
        self._bereft = False
        self._process.log.info("%s: %s is started", why, child)

    def _bury(self, child: Child, code: int, now: float) -> None:
        self._bereft = True
        if child.ready_at is not None and now - child.ready_at > _HEALTHY:
            self._watched.backoff.reset()
        pause = self._watched.backoff.next()
        self._check_at = now + pause
        if code:
            self._process.log.error("%s; another starts in %.1f s", named(cause_of(child, code)), pause)

    def close(self) -> None:
        """End with the worker: the relay delivers what there is, and is waited for a little."""
        if self._watched.child is not None:
            self._watched.child.release(inf)
        self._watched.close(_FAREWELL)
