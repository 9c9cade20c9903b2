"""The scheduler: moves due jobs to their queues and makes cron ticks happen. It sleeps until the next due instant; any number may run."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence

from redis import Redis

from fusion.runtime.doorbell import Doorbell
from fusion.runtime.loop import Loop
from fusion.runtime.maintenance import Maintenance
from fusion.runtime.probes import Probes, Report
from fusion.runtime.redis_calls import Refused
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.runtime.signals import Signals
from fusion.runtime.supervised import SupervisorLine
from fusion.scheduler.declaring import Declaring
from fusion.scheduler.presence import Presence
from fusion.scheduler.ticker import Ticker
from fusion.settings import Settings
from fusion.store.client.connections import check_server, connect, describe
from fusion.store.layout.keys import SCHEDULER_BELL
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker

log = logging.getLogger("fusion.scheduler")

#: Due jobs moved by one call; several thousandths of a second of the server's time at most.
_BATCH = 200
#: Seconds one wait at the doorbell lasts.
_WAIT = 20.0
#: Seconds after an outage in which all other schedulers have given a sign of life, if they live.
_SETTLED = 5.0


class SchedulerProcess:
    """One scheduler.

    - all state is in Redis, each step is one script: it may be killed at any instant, and beside others none does a thing twice;
    - what `modules` and `tasks` declare is stored when it starts and again at HUP; entries run whoever declared them;
    - like every process of a fleet it gives back what dead workers held;
    - INT, TERM or QUIT: it ends at once, there is nothing to finish.
    """

    def __init__(self, settings: Settings, modules: Sequence[str], tasks: Sequence[str]) -> None:
        self._settings = settings
        self._loop, self._signals, self._link = Loop(), Signals(), RedisLink(log, "what is due waits")
        self._connection = connect(settings, role="worker")
        self._broker, cron = Broker.of(self._connection, settings), CronBroker.of(self._connection, settings)
        self._presence = Presence(settings, cron, self._link)
        self._maintenance = Maintenance(settings, list, log, promote_batch=_BATCH)
        self._ticker = Ticker(cron, self._link, settings.lease, log)
        self._declaring = Declaring(settings, modules, tasks, cron, self._link, self._loop, log)
        self._refused: dict[str, str] = {}
        self._bell = Doorbell(self._connect_blocking, self._broker.keys, _WAIT)
        self._reporter = SupervisorLine.inherited()
        self._probes = Probes(self._loop, {"/livez": self._report_live, "/readyz": self._report_ready})

    def _connect_blocking(self) -> Redis:
        return connect(self._settings, role="blocking")

    def run(self) -> int:
        """Until told to stop. ConfigurationError if the server can't be used; redis-py's errors if it can't be reached at the start."""
        check_server(self._connection, allow_eviction=self._settings.allow_eviction)
        if self._settings.probe_port is not None:
            log.info("probes: %s/livez and /readyz", self._probes.open(self._settings.probe_host, self._settings.probe_port))
        self._signals.install()
        self._loop.watch(self._signals.fileno(), self._signals.drain)
        self._reporter.watch(self._loop)
        try:
            self._presence.enter()
            log.info("scheduler %s (pid %d); Redis: %s", self._presence.name, os.getpid(), describe(self._connection))
            self._declaring.begin()
            while self._step():
                pass
            return self._end()
        finally:
            self._declaring.close()
            self._bell.close()
            self._probes.close()
            self._signals.restore()
            self._reporter.close()
            self._connection.close()

    def _step(self) -> bool:
        """One round of the loop; False when it is to end."""
        if self._signals.stops or self._signals.quit or self._reporter.released:
            return False
        if self._signals.reload:
            self._signals.reload = False
            log.info("reload: what code declares is read again")
            self._declaring.begin()
        now = time.monotonic()
        self._probes.check(now)
        self._bell.check(now)
        if self._link.open(now):
            away = self._link.away_since is not None
            try:
                self._talk(now)
            except RedisAway:
                pass
            if away and self._link.away_since is None:
                self._declaring.repeat(min(_SETTLED, self._settings.lease))
        self._reporter.beat(
            now, "away" if self._link.away_since else "idle", ready=self._declaring.done and not self._link.outdated
        )
        if self._link.away_since is None:
            self._bell.arm([SCHEDULER_BELL])
        self._loop.follow("doorbell", self._bell.fileno(), self._on_bell)
        self._loop.run_once(self._timeout())
        return True

    def _talk(self, now: float) -> None:
        """Everything that is due with Redis. Ticks come before declarations: a changed plan begins where the former was followed to."""
        if now >= self._presence.next_at:
            self._guarded("schedulers", self._presence.beat)
        if now >= self._maintenance.next_at:
            self._link.attempt(lambda: self._maintenance.run(self._broker, now), look=True)
        if now >= self._ticker.next_at:
            self._guarded("cron entries", self._ticker.look)
        if now >= self._declaring.next_at:
            self._guarded("declared cron entries", lambda: self._declaring.tend(now))

    def _guarded(self, what: str, step: Callable[[], None]) -> None:
        """What Redis refuses of one thing keeps nobody from the others. It is said once."""
        try:
            step()
        except Refused as error:
            if self._refused.get(what) != str(error):
                self._refused[what] = str(error)
                log.error("%s can't be looked after: %s", what, error)
        else:
            if self._refused.pop(what, None):
                log.warning("%s are looked after again", what)

    def _timeout(self) -> float:
        now = time.monotonic()
        redis_at = min(self._ticker.next_at, self._maintenance.next_at, self._presence.next_at, self._declaring.next_at)
        return max(0.0, min(max(redis_at, self._link.retry_at) - now, 1.0 if self._reporter.supervised else _WAIT))

    def _on_bell(self) -> None:
        if self._bell.receive() is not False:
            self._ticker.next_at = 0.0
            self._maintenance.due(0.0)

    def _end(self) -> int:
        try:
            self._presence.leave()
        except (RedisAway, Refused):
            log.warning("Redis could not be told; it takes this scheduler for dead after %.0f s", self._settings.lease)
        log.info("scheduler %s ended", self._presence.name)
        return 0

    # -- probes

    def _report_live(self) -> Report:
        return Report([], {"scheduler": self._presence.name, "pid": os.getpid()})

    def _report_ready(self) -> Report:
        reasons = [*self._link.trouble]
        if not self._declaring.done:
            reasons.append("what code declares is being read")
        return Report(reasons, self._report_live().facts)
