"""The base of every long-running process of Fusion: one loop, signals, a link to Redis, timers, a supervisor, probes, an orderly end."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from enum import IntEnum
from typing import TYPE_CHECKING

from redis import Redis

from fusion.runtime.loop import Loop
from fusion.runtime.probes import HealthReport, Page, Probes
from fusion.runtime.redis_link import RedisLink
from fusion.runtime.signals import Signals
from fusion.runtime.supervised import SupervisorLine
from fusion.runtime.timers import Timers
from fusion.settings import Settings
from fusion.store.client.connections import ServerInfo, check_server, connect

if TYPE_CHECKING:
    from fusion.metrics.figures import Figures, Series


class Phase(IntEnum):
    """The phases of a process's life; it only ever moves on."""

    #: It is not in its list in Redis yet.
    STARTING = 0
    RUNNING = 1
    #: It takes nothing new and finishes what is under way: INT or TERM, its supervisor, a limit.
    DRAINING = 2
    #: It aborts the work under way, after a second INT or TERM, after QUIT, or if its supervisor is gone and the warm end takes too long.
    KILLING = 3
    ENDED = 4


class Process(ABC):
    """Runs one loop until it is stopped. Subclasses define what happens at the start, in each round and at the end.

    - each round: obey signals and the supervisor, run the timers that are due, call `due`; then sleep until a descriptor or a timer is
      ready;
    - `timers` holds everything that waits for a time;
    - `closing` closes the opened parts, the last one first.
    """

    #: The word for it in `/metrics`.
    kind = ""

    def __init__(self, settings: Settings, log: logging.Logger, meanwhile: str) -> None:
        """`meanwhile`: words for the log about what continues while Redis is away."""
        self.settings, self._log = settings, log
        self.phase = Phase.STARTING
        self.loop, self.signals, self.link = Loop(), Signals(), RedisLink(log, meanwhile)
        self.timers = Timers(self.link)
        self.supervisor = SupervisorLine.inherited()
        self.connection = connect(settings, role="worker")
        #: The server that was found at the start.
        self.server: ServerInfo | None = None
        self.probes = Probes(self.loop, {"/livez": self.live, "/readyz": self.ready}, {"/metrics": self._metrics})
        #: The counters that pages of `/metrics` have shown.
        self._shown_series: Series = set()
        self.closing = ExitStack()
        for close in (self.connection.close, self.supervisor.close, self.signals.restore, self.probes.close):
            self.closing.callback(close)
        self.timers.when(self.supervisor, self._report)
        self.timers.when(self.probes, self.probes.tick)

    def connect_blocking(self) -> Redis:
        """Open a separate connection for a call that waits inside Redis."""
        return connect(self.settings, role="blocking")

    def run(self) -> int:
        """Work until stopped; return the exit code.

        ConfigurationError if the server can't be used; redis-py's errors if it can't be reached at the start.
        """
        with self.closing:
            self.server = check_server(self.connection, allow_eviction=self.settings.allow_eviction, prefix=self.settings.prefix)
            if self.settings.probe_port is not None:
                url = self.probes.open(self.settings.probe_host, self.settings.probe_port)
                self._log.info("probes: %s/livez, /readyz and /metrics", url)
                self.supervisor.say("PROBE", url)
            self.signals.install()  # from here on a signal is a request, and the end removes what was registered
            self.loop.watch(self.signals.fileno(), self.signals.drain)
            self.supervisor.watch(self.loop)
            self.boot()
            self.phase = max(self.phase, Phase.RUNNING)
            while self._round():
                pass
            code = self.end()
            self.phase = Phase.ENDED
            return code

    def drain(self, why: str) -> None:
        """Take nothing new, and end once the work under way is done. `why`: the reason, for the log."""
        self.phase = max(self.phase, Phase.DRAINING)

    def kill(self) -> None:
        """Abort the work under way, and end."""
        self.phase = max(self.phase, Phase.KILLING)

    def obey(self) -> None:
        """Obey signals and the supervisor. Called in each round once there is something to obey."""
        signals, released = self.signals, self.supervisor.released
        if signals.quit or signals.stops > 1 or (released and self.supervisor.impatient(time.monotonic())):
            self.kill()
        elif signals.stops:
            self.drain("signal")
        elif released:
            self.drain("the supervisor")

    def _round(self) -> bool:
        """Run one round of the loop. False if the process should end."""
        if self.signals.came or self.supervisor.released:
            self.obey()
        now = time.monotonic()
        if self.phase >= Phase.DRAINING and self.finished(now):
            return False
        self.timers.tick(now)
        self.due(now)
        if self.supervisor.wants_ready:
            self._report(now)  # report a change of state at once
        if self.phase >= Phase.DRAINING and self.finished(now):
            return False
        self.loop.run_once(self.timers.pause())
        return True

    def _report(self, now: float) -> None:
        state, is_ready = self.status()
        self.supervisor.beat(now, state, ready=is_ready)

    @abstractmethod
    def boot(self) -> None:
        """Register in Redis and start what runs beside the loop. Signal handlers are installed already."""

    @abstractmethod
    def due(self, now: float) -> None:
        """Do the work of each round, after the timers that were due."""

    def finished(self, now: float) -> bool:
        """Return True if the loop should end. Called before and after each round's work, from DRAINING on."""
        return True

    @abstractmethod
    def end(self) -> int:
        """Finish the work and remove the entry in Redis. Return the exit code."""

    @abstractmethod
    def status(self) -> tuple[str, bool]:
        """Return the state that each heartbeat reports to the supervisor, and whether this process can do its work."""

    def _metrics(self, host: str) -> Page:
        """Return the page for Prometheus."""
        from fusion.metrics.figures import Figures
        from fusion.metrics.process import process_page

        figures = Figures()
        rest = self.measure(figures)
        return process_page(figures, self.kind, self._shown_series, rest, self.link.away_since is None, self.link.outages)

    def measure(self, figures: Figures) -> Callable[[Figures], object] | None:
        """Add what this process holds and counts, for `/metrics`. What takes long is added by the returned function, in another thread."""
        return None

    @abstractmethod
    def live(self) -> HealthReport:
        """Return the answer to the probe `/livez`."""

    @abstractmethod
    def ready(self) -> HealthReport:
        """Return the answer to the probe `/readyz`."""
