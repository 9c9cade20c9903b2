"""The relay: brings events from the stream to the sinks. Jobs know nothing of it, and any number may run."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Protocol

from redis import Redis

from fusion.events.sink import Sink
from fusion.relay.presence import Presence
from fusion.relay.runner import SinkRunner
from fusion.runtime.loop import Loop
from fusion.runtime.probes import Probes, Report
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.runtime.signals import Signals
from fusion.runtime.supervised import SupervisorLine
from fusion.settings import Settings
from fusion.store.client.connections import check_server, connect, describe
from fusion.store.stream.reader import EventReader
from fusion.store.write.event_broker import EventBroker

log = logging.getLogger("fusion.relay")

#: Seconds between two trims of the stream, and how many of them in a row while there is more to drop.
_TRIM_EVERY, _TRIMS = 5.0, 20
#: Seconds one wait for new events lasts at most: a signal to end is heeded after it at the latest.
_BLOCK = 1.0
#: Seconds without an answer after which a sink is shown as busy.
_BUSY = 10.0
#: Seconds that sinks get to finish what they write when the relay ends.
_LONGEST_END = 10.0
_NO_SINK = "no sink (FUSION_EVENTS_FILE, FUSION_EVENTS_LOG or FUSION_ELASTICSEARCH_URL would name one), for callbacks alone"


class Service(Protocol):
    """What else lives in a relay's process, in a thread of its own."""

    def start(self) -> None: ...

    def ask_to_stop(self, timeout: float) -> None:
        """It may finish what is under way for so many seconds."""
        ...

    def stop(self, timeout: float) -> bool:
        """The same, and wait for it; False if it did not end."""
        ...

    def is_alive(self) -> bool: ...


class RelayProcess:
    """One relay, with a thread for each sink, and the courier of callbacks beside them.

    - what a sink has is acknowledged in Redis, so a relay may be killed at any instant: others, or the next one, deliver what it held;
    - INT or TERM: what is being written is finished, and what there is is delivered, for ten seconds at most; twice, or QUIT: at once.
    """

    def __init__(self, settings: Settings, sinks: Sequence[Sink], courier: Service | None = None) -> None:
        self._settings = settings
        self._loop, self._signals, self._link = Loop(), Signals(), RedisLink(log, "events wait in it")
        self._connection = connect(settings, role="worker")
        self._broker = EventBroker.of(self._connection, settings)
        self._presence = Presence(settings, self._broker, self._link, [sink.name for sink in sinks])
        self._connections = [connect(settings, role="blocking") for _ in sinks]
        self._runners = [self._runner(sink, connection) for sink, connection in zip(sinks, self._connections, strict=True)]
        self._courier, self._deserted = courier, False
        self._trim_at = 0.0
        self._reporter = SupervisorLine.inherited()
        self._probes = Probes(self._loop, {"/livez": self._report_live, "/readyz": self._report_ready})

    def _runner(self, sink: Sink, connection: Redis) -> SinkRunner:
        broker = EventBroker.of(connection, self._settings)
        reader = EventReader(broker, sink.name, lambda: self._presence.name, self._settings.events_payload)
        return SinkRunner(sink, reader, min(_BLOCK, self._settings.idle_wait))

    def run(self) -> int:
        """Until told to stop. 0, or 1 if a sink did not finish in time. ConfigurationError if the server can't be used; redis-py's errors
        if it can't be reached at the start."""
        check_server(self._connection, allow_eviction=self._settings.allow_eviction)
        if self._settings.probe_port is not None:
            log.info("probes: %s/livez and /readyz", self._probes.open(self._settings.probe_host, self._settings.probe_port))
        self._signals.install()
        self._loop.watch(self._signals.fileno(), self._signals.drain)
        self._reporter.watch(self._loop)
        try:
            self._presence.enter()
            names = ", ".join(runner.sink.name for runner in self._runners) or _NO_SINK
            log.info("relay %s (pid %d) to %s; Redis: %s", self._presence.name, os.getpid(), names, describe(self._connection))
            for runner in self._runners:
                runner.start()
            if self._courier:
                self._courier.start()
            while self._step():
                pass
            return self._end()
        finally:
            self._probes.close()
            self._signals.restore()
            self._reporter.close()
            self._connection.close()

    def _step(self) -> bool:
        """One round of the loop; False when it is to end."""
        if self._signals.stops or self._signals.quit or self._reporter.released:
            return False
        if self._courier and not self._courier.is_alive():
            log.error("the courier of callbacks has ended by itself: so does this relay")
            self._deserted = True
            return False
        now = time.monotonic()
        self._probes.check(now)
        if any(runner.away_since for runner in self._runners) and self._link.away_since is None:
            self._presence.next_at = 0.0  # so that an outage is told, and once for all sinks
        if self._link.open(now):
            try:
                self._talk(now)
            except RedisAway:
                pass
        state = "away" if self._link.away_since else "busy" if self._busy(now) else "idle"
        self._reporter.beat(now, state, ready=not self._link.outdated)
        self._loop.run_once(self._timeout())
        return True

    def _talk(self, now: float) -> None:
        if now >= self._presence.next_at:
            self._presence.beat(self._busy(now))
        if now >= self._trim_at:
            self._trim_at = now + _TRIM_EVERY
            for _ in range(_TRIMS):
                if not self._link.attempt(lambda: self._broker.events_trim(self._settings.events_cap)):
                    break

    def _busy(self, now: float) -> str:
        """Sinks that have not answered for a while, for people."""
        waits = [(runner.sink.name, now - runner.writing_since) for runner in self._runners if runner.writing_since is not None]
        return ", ".join(f"{name} for {waited:.0f} s" for name, waited in waits if waited > _BUSY)

    def _timeout(self) -> float:
        now = time.monotonic()
        at = max(min(self._presence.next_at, self._trim_at), self._link.retry_at)
        return max(0.0, min(at - now, 1.0))

    def _end(self) -> int:
        for runner in self._runners:
            runner.stop()
        until = time.monotonic() + min(_LONGEST_END, self._settings.shutdown_timeout)
        threads: list[SinkRunner | Service] = [*self._runners]
        if self._courier:
            threads.append(self._courier)
            self._courier.ask_to_stop(until - time.monotonic())
        while any(thread.is_alive() for thread in threads) and time.monotonic() < until:
            if self._signals.quit or self._signals.stops > 1:
                break
            self._loop.run_once(0.02)
        failed = self._deserted or (self._courier is not None and not self._courier.stop(0.0))
        late = [runner.sink.name for runner in self._runners if runner.is_alive()]
        if late:
            log.warning("%s did not answer in time; what it was being sent comes again with the next relay", ", ".join(late))
        try:
            self._presence.leave()
        except RedisAway:
            log.warning("Redis could not be told; others deliver what is left after %.0f s", self._presence.lease)
        for runner, connection in zip(self._runners, self._connections, strict=True):
            if not runner.is_alive():
                connection.close()
        log.info("relay %s ended", self._presence.name)
        return int(bool(late) or failed)

    # -- probes

    def _report_live(self) -> Report:
        return Report([], {"relay": self._presence.name, "pid": os.getpid()})

    def _report_ready(self) -> Report:
        return Report(self._link.trouble, {**self._report_live().facts, "busy": self._busy(time.monotonic())})
