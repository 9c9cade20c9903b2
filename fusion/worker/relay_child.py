"""A worker's relay process. The worker starts it if no relay runs, replaces it when it dies, and ends it with itself."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from math import inf

from fusion.kernel import defaults
from fusion.runtime.child_process import Child, cause_of, named
from fusion.runtime.context import ProcessContext
from fusion.runtime.timers import Timer, Timers
from fusion.runtime.watched_child import WatchedChild
from fusion.store.write.event_broker import EventBroker

#: Seconds between two checks whether a relay is missing. The first check is earlier, at a random time, so that a fleet does not check at
#: once.
_CHECK, _FIRST_CHECK = 5.0, 1.0
#: Seconds after which a ready relay counts as healthy: if it dies later, that is no crash loop.
_HEALTHY = 10.0
#: Seconds in which it may deliver the rest when the worker ends.
_FAREWELL = 5.0


class RelayChild:
    """Starts a relay if a sink of the settings has none, or if callbacks wait and no relay runs. `command`: its command line; empty: never.

    The relay is a separate process, so it never delays the worker. If the worker dies, the relay ends too.
    """

    def __init__(self, process: ProcessContext, command: Sequence[str]) -> None:
        self._process = process
        self._broker = EventBroker.of(process.broker.connection, process.settings)
        self._watched = WatchedChild(process, "relay", command, _FAREWELL)
        self._lease = min(process.settings.lease, defaults.RELAY_LEASE)
        self._bereft = False
        #: Asks Redis whether a relay is needed; inf while this worker's runs.
        self._check = Timer(time.monotonic() + _FIRST_CHECK * random.uniform(0.2, 1.0) if command else inf)

    def schedule(self, timers: Timers) -> None:
        """Add the timers: they check this worker's relay, or ask Redis whether one is needed."""
        timers.when(self._watched, self._look_after)
        timers.when(self._check, self._look_for, redis=True)

    def _look_after(self, now: float) -> None:
        """Handle the end of the relay."""
        if ended := self._watched.ended(now):
            self._bury(*ended, now)

    def _look_for(self, now: float) -> None:
        """Start a relay if one is needed."""
        self._check.next_at = now + _CHECK * random.uniform(0.8, 1.0)
        if why := self._process.link.attempt(self._missing, look=True):
            self._start(now, why)

    def _missing(self) -> str:
        """Return why a relay is needed; empty if none is."""
        # if the own relay died, its last heartbeat may still count: then do not rely on heartbeats
        sinks, within = self._process.settings.sinks, 0.0 if self._bereft else self._lease
        if sinks and (self._bereft or not self._broker.served(sinks, within)):
            return f"no relay serves the sinks {', '.join(sinks)}"
        return "" if self._broker.callbacks_served(within) else "callbacks wait, and there is no relay"

    def _start(self, now: float, why: str) -> None:
        child = self._watched.start(now)
        if child is None:
            self._check.next_at = now + self._watched.backoff.next()
            return
        self._bereft, self._check.next_at = False, inf
        self._process.log.info("%s: %s is started", why, child)

    def _bury(self, child: Child, code: int, now: float) -> None:
        self._bereft = True
        if child.ready_at is not None and now - child.ready_at > _HEALTHY:
            self._watched.backoff.reset()
        pause = self._watched.backoff.next()
        self._check.next_at = now + pause
        if code:
            self._process.log.error("%s; another starts in %.1f s", named(cause_of(child, code)), pause)

    def close(self) -> None:
        """End the relay with the worker: give it a few seconds to deliver the rest."""
        if self._watched.child is not None:
            self._watched.child.release(inf)
        self._watched.close(_FAREWELL)
