"""The relay: sends events from the stream to the sinks. Jobs do not depend on it, and any number may run."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from redis import Redis

from fusion.events.sink import Sink
from fusion.kernel import defaults
from fusion.relay.runner import SinkRunner
from fusion.runtime.membership import Held, Membership, own_fields
from fusion.runtime.probes import HealthReport
from fusion.runtime.process import Phase, Process
from fusion.runtime.redis_link import RedisAway
from fusion.settings import Settings
from fusion.store.client.connections import describe
from fusion.store.stream.reader import EventReader
from fusion.store.write.event_broker import EventBroker

if TYPE_CHECKING:
    from fusion.metrics.figures import Figures

log = logging.getLogger("fusion.relay")

#: Seconds between two trims of the stream, and how many of them in a row while there is more to drop.
_TRIM_EVERY, _TRIMS = 5.0, 20
#: Seconds between two checks that the threads live and Redis answers them.
_CHECK_EVERY = 1.0
#: Longest wait for new events in seconds, and so the longest time until a runner notices that it should stop.
_BLOCK = 1.0
#: Seconds without an answer after which a sink is shown as busy.
_BUSY = 10.0
#: Seconds that sinks get to finish what they write when the relay ends.
_LONGEST_END = 10.0
_NO_SINK = "no sink (FUSION_EVENTS_FILE, FUSION_EVENTS_LOG or FUSION_ELASTICSEARCH_URL would name one), for callbacks alone"


class RelayListing:
    """The entry of one relay. It also shows which sinks have not answered for a while."""

    def __init__(self, settings: Settings, broker: EventBroker, sinks: Sequence[str]) -> None:
        self._settings, self._broker, self._sinks = settings, broker, sinks
        self._fields = {**own_fields(), "sinks": ",".join(sinks)}
        #: Seconds without a heartbeat after which other relays deliver the events that a relay holds.
        self.lease = min(settings.lease, defaults.RELAY_LEASE)
        #: Text that names the sinks that do not answer; sent with the next heartbeat.
        self.busy = ""

    def register(self, name: str, incarnation: str, notes: Mapping[str, str]) -> bool:
        """See `Listing`."""
        ttl, backlog = self._settings.worker_ttl, self._settings.events_backlog if self._sinks else 0
        fields = {**self._fields, "busy": self.busy}
        return self._broker.relay_beat(name, incarnation, self.lease, ttl, self._sinks, backlog, fields)

    def beat(self, name: str, incarnation: str, held: Sequence[Held]) -> tuple[bool, list[str]]:
        """Renew the entry."""
        return self.register(name, incarnation, {}), []

    def leave(self, name: str, incarnation: str) -> int:
        """Remove the entry: other relays get this relay's events at once. It holds no jobs."""
        self._broker.relay_leave(name, incarnation)
        return 0


class Service(Protocol):
    """Another thread in a relay's process."""

    def start(self) -> None:
        """Begin to work."""
        ...

    def ask_to_stop(self, timeout: float) -> None:
        """Ask it to stop. It may finish the work under way, for at most `timeout` seconds."""
        ...

    def stop(self, timeout: float) -> bool:
        """Ask it to stop and wait for it. False if it did not end."""
        ...

    def is_alive(self) -> bool:
        """False once its thread has ended."""
        ...

    def measure(self, figures: Figures) -> None:
        """Add what it counted, for `/metrics`."""
        ...


class RelayProcess(Process):
    """One relay, with a thread for each sink, and the courier of callbacks beside them.

    - delivered events are acknowledged in Redis, so a relay may be killed at any time: another relay delivers the events that it held;
    - INT or TERM: it finishes writing and delivers the events that are there, for at most ten seconds; twice, or QUIT: it ends at once;
    - if the courier ends by itself, the relay ends too: its parent process starts another one.
    """

    kind = "relay"

    def __init__(self, settings: Settings, sinks: Sequence[Sink], courier: Service | None = None) -> None:
        super().__init__(settings, log, "events wait in it")
        self._broker = EventBroker.of(self.connection, settings)
        self._listing = RelayListing(settings, self._broker, [sink.name for sink in sinks])
        self._membership = Membership(self.link, self._listing, settings.name, self._listing.lease / 3)
        self._connections = [self.connect_blocking() for _ in sinks]
        self._runners = [self._runner(sink, connection) for sink, connection in zip(sinks, self._connections, strict=True)]
        self._courier, self._deserted = courier, False
        self.timers.every(_CHECK_EVERY, self._check)
        self.timers.when(self._membership, self._beat, redis=True)
        self.timers.every(_TRIM_EVERY, self._trim, redis=True)

    def _runner(self, sink: Sink, connection: Redis) -> SinkRunner:
        broker = EventBroker.of(connection, self.settings)
        reader = EventReader(broker, sink.name, lambda: self._membership.name, self.settings.events_payload)
        return SinkRunner(sink, reader, min(_BLOCK, self.settings.idle_wait))

    def boot(self) -> None:
        """Enter the list of relays and start the threads."""
        self._membership.enter()
        names = ", ".join(runner.sink.name for runner in self._runners) or _NO_SINK
        log.info("relay %s (pid %d) to %s; Redis: %s", self._membership.name, os.getpid(), names, describe(self.connection))
        for thread in self._threads:
            thread.start()

    @property
    def _threads(self) -> list[SinkRunner | Service]:
        return [*self._runners, *([self._courier] if self._courier else ())]

    def _check(self, now: float) -> None:
        if self._courier and not self._courier.is_alive():
            log.error("the courier of callbacks has ended by itself: so does this relay")
            self._deserted = True
            self.drain("the courier has ended")
        if any(runner.away_since for runner in self._runners) and self.link.away_since is None:
            self._membership.beat_now()  # so that an outage is logged once, and not by each sink

    def _beat(self, now: float) -> None:
        self._listing.busy = self._busy(now)
        self._membership.tick(now)

    def _trim(self, now: float) -> None:
        for _ in range(_TRIMS):
            if not self.link.attempt(lambda: self._broker.events_trim(self.settings.events_cap)):
                break

    def _busy(self, now: float) -> str:
        """Return a text that names the sinks that have not answered for a while."""
        waits = [(runner.sink.name, now - runner.writing_since) for runner in self._runners if runner.writing_since is not None]
        return ", ".join(f"{name} for {waited:.0f} s" for name, waited in waits if waited > _BUSY)

    def due(self, now: float) -> None:
        """Do nothing: timers and threads do the work."""

    def end(self) -> int:
        """Let the threads finish and leave the list of relays. 1 if a sink did not finish in time, or the courier did not; else 0."""
        for runner in self._runners:
            runner.stop()
        until = time.monotonic() + min(_LONGEST_END, self.settings.shutdown_timeout)
        if self._courier:
            self._courier.ask_to_stop(until - time.monotonic())
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < until:
            self.obey()
            if self.phase >= Phase.KILLING:
                break
            self.loop.run_once(0.02)
        failed = self._deserted or (self._courier is not None and not self._courier.stop(0.0))
        late = [runner.sink.name for runner in self._runners if runner.is_alive()]
        if late:
            log.warning("%s did not answer in time; what it was being sent comes again with the next relay", ", ".join(late))
        try:
            self._membership.leave()
        except RedisAway:
            log.warning("could not report the end to Redis; other relays deliver what is left after %.0f s", self._listing.lease)
        for runner, connection in zip(self._runners, self._connections, strict=True):
            if not runner.is_alive():
                connection.close()
        log.info("relay %s ended", self._membership.name)
        return int(bool(late) or failed)

    # -- status

    def status(self) -> tuple[str, bool]:
        """`away`, `busy` while a sink does not answer, or `idle`; ready unless it is too old for the data."""
        state = "away" if self.link.away_since else "busy" if self._busy(time.monotonic()) else "idle"
        return state, not self.link.outdated

    def measure(self, figures: Figures) -> Callable[[Figures], object] | None:
        """Add events by sink, and callbacks."""
        from fusion.metrics import catalogue

        for runner in self._runners:
            figures.put(catalogue.RELAYED, runner.delivered, runner.sink.name)
            figures.put(catalogue.RELAY_PARKED, runner.parked, runner.sink.name)
            figures.put(catalogue.RELAY_FAILURES, runner.failures, runner.sink.name)
        if self._courier:
            self._courier.measure(figures)
        return None

    def live(self) -> HealthReport:
        """Report that the loop turns: otherwise nothing would answer."""
        return HealthReport([], {"relay": self._membership.name, "pid": os.getpid()})

    def ready(self) -> HealthReport:
        """Report whether Redis answers."""
        return HealthReport(self.link.trouble, {**self.live().facts, "busy": self._busy(time.monotonic())})
