"""The frame of every long-running process of Fusion: one loop, signals, a link to Redis, timers, a supervisor, probes, an orderly end."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from enum import IntEnum

from redis import Redis

from fusion.runtime.loop import Loop
from fusion.runtime.probes import HealthReport, Probes
from fusion.runtime.redis_link import RedisLink
from fusion.runtime.signals import Signals
from fusion.runtime.supervised import SupervisorLine
from fusion.runtime.timers import Timers
from fusion.settings import Settings
from fusion.store.client.connections import check_server, connect


class Phase(IntEnum):
    """The phases of a process's life; it only ever moves on."""

    #: It has not entered its list in Redis yet.
    STARTING = 0
    RUNNING = 1
    #: It takes nothing new and finishes what is under way: INT or TERM, its supervisor, a limit.
    DRAINING = 2
    #: It breaks off what is under way: the second INT or TERM, QUIT, a supervisor that is gone and a warm end that takes too long.
    KILLING = 3
    ENDED = 4


class Process(ABC):
    """Runs one loop until it is told to stop. Whoever extends it says what it does at its start, in each round and at its end.

    - each round: signals, the supervisor's word, timers that are due, `due`; then the loop sleeps until a descriptor or a timer wakes it;
    - `timers` knows everything that is waited for by the clock;
    - `closing` closes what was opened, the last first.
    """

    def __init__(self, settings: Settings, log: logging.Logger, meanwhile: str) -> None:
        """`meanwhile`: what goes on while Redis is away, for the log."""
        self.settings, self._log = settings, log
        self.phase = Phase.STARTING
        self.loop, self.signals, self.link = Loop(), Signals(), RedisLink(log, meanwhile)
        self.timers = Timers(self.link)
        self.supervisor = SupervisorLine.inherited()
        self.connection = connect(settings, role="worker")
        self.probes = Probes(self.loop, {"/livez": self.live, "/readyz": self.ready})
        self.closing = ExitStack()
        for close in (self.connection.close, self.supervisor.close, self.signals.restore, self.probes.close):
            self.closing.callback(close)
        self.timers.when(self.supervisor, self._report)
        self.timers.when(self.probes, self.probes.tick)

    def connect_blocking(self) -> Redis:
        """A connection of its own for a call that waits inside Redis."""
        return connect(self.settings, role="blocking")

    def run(self) -> int:
        """Work until told to stop; return the exit code.

        ConfigurationError if the server can't be used; redis-py's errors if it can't be reached at the start.
        """
        with self.closing:
            check_server(self.connection, allow_eviction=self.settings.allow_eviction)
            if self.settings.probe_port is not None:
                url = self.probes.open(self.settings.probe_host, self.settings.probe_port)
                self._log.info("probes: %s/livez and /readyz", url)
            self.signals.install()  # from here on a signal is a request, and what was registered is taken back
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
        """Take nothing new from now on, and end when what is under way is done. `why` is for the log."""
        self.phase = max(self.phase, Phase.DRAINING)

    def kill(self) -> None:
        """Break off what is under way, and end."""
        self.phase = max(self.phase, Phase.KILLING)

    def obey(self) -> None:
        """Do what signals and the supervisor ask for."""
        if self.signals.quit or self.signals.stops > 1 or self.supervisor.impatient(time.monotonic()):
            self.kill()
        elif self.signals.stops:
            self.drain("signal")
        elif self.supervisor.released:
            self.drain("the supervisor")

    def _round(self) -> bool:
        """One round of the loop; False when the process is to end."""
        self.obey()
        now = time.monotonic()
        if self.finished(now):
            return False
        self.timers.tick(now)
        self.due(now)
        if self.supervisor.wants_ready:
            self._report(now)  # as soon as it is so
        if self.finished(now):
            return False
        self.loop.run_once(self.timers.pause())
        return True

    def _report(self, now: float) -> None:
        state, is_ready = self.status()
        self.supervisor.beat(now, state, ready=is_ready)

    @abstractmethod
    def boot(self) -> None:
        """Enter Redis and start what runs beside the loop. Signals are noted already."""

    @abstractmethod
    def due(self, now: float) -> None:
        """Do what each round asks for, after the timers that were due."""

    @abstractmethod
    def finished(self, now: float) -> bool:
        """Say whether the loop is to end: asked before and after what a round does."""

    @abstractmethod
    def end(self) -> int:
        """Finish, take the entry in Redis back; return the exit code."""

    @abstractmethod
    def status(self) -> tuple[str, bool]:
        """The word that the supervisor is told with each sign of life, and whether this process can do its work."""

    @abstractmethod
    def live(self) -> HealthReport:
        """The answer to the probe `/livez`."""

    @abstractmethod
    def ready(self) -> HealthReport:
        """The answer to the probe `/readyz`."""
