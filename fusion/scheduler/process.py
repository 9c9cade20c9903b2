"""The scheduler: moves due jobs to their queues and runs cron ticks. It sleeps until the next due time; any number may run."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fusion.runtime.doorbells import Doorbell
from fusion.runtime.maintenance import Maintenance
from fusion.runtime.membership import Held, Membership, own_fields
from fusion.runtime.probes import HealthReport
from fusion.runtime.process import Process
from fusion.runtime.redis_link import CallRefused, RedisAway, refusable
from fusion.runtime.served_queues import ServedQueues
from fusion.runtime.timers import Tick
from fusion.scheduler.declaring import Declaring
from fusion.scheduler.loading import Sources
from fusion.scheduler.ticker import Ticker
from fusion.settings import Settings
from fusion.store.client.connections import describe
from fusion.store.layout.names import SCHEDULER_BELL
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker

if TYPE_CHECKING:
    from fusion.metrics.figures import Figures

log = logging.getLogger("fusion.scheduler")

#: Seconds one wait at the doorbell lasts.
_WAIT = 20.0
#: Seconds after an outage by which all live schedulers have sent a heartbeat.
_SETTLED = 5.0


class SchedulerListing:
    """The entry of one scheduler, with its app and version: while a higher version is alive, schedulers of a lower one store nothing."""

    def __init__(self, settings: Settings, broker: CronBroker) -> None:
        self._settings, self._broker = settings, broker
        self._fields = {**own_fields(), "app": settings.app, "version": settings.app_version}

    def register(self, name: str, incarnation: str, notes: Mapping[str, str]) -> bool:
        """See `Listing`."""
        return self._broker.scheduler_beat(name, incarnation, self._settings.lease, self._settings.worker_ttl, self._fields)

    def beat(self, name: str, incarnation: str, held: Sequence[Held]) -> tuple[bool, list[str]]:
        """Renew the entry. CallRefused if the list's key has the wrong type: ticks go on without it."""
        return refusable(lambda: self.register(name, incarnation, {}))(), []

    def leave(self, name: str, incarnation: str) -> int:
        """Remove the entry; a scheduler holds no jobs. CallRefused as for `beat`."""
        refusable(lambda: self._broker.scheduler_leave(name, incarnation))()
        return 0


class _Guard:
    """Contains a refusal by Redis, so that it stops only one kind of work. The refusal is logged once, and so is its end."""

    def __init__(self, what: str, tick: Tick) -> None:
        self._what, self._tick = what, tick
        self._refused = ""

    def tick(self, now: float) -> None:
        """Run the work. RedisAway passes through."""
        try:
            self._tick(now)
        except CallRefused as error:
            if str(error) != self._refused:
                self._refused = str(error)
                log.error("%s can't be looked after: %s", self._what, error)
        else:
            if self._refused:
                self._refused = ""
                log.warning("%s are looked after again", self._what)


class SchedulerProcess(Process):
    """One scheduler.

    - all state is in Redis and each step is one script: it may be killed at any time, and several schedulers never do a step twice;
    - it stores the entries that `sources` declare at its start and at HUP; it runs all entries, no matter where they were declared;
    - like every process of a fleet it gives back the jobs of dead workers;
    - at INT, TERM or QUIT it ends at once, there is nothing to finish.
    """

    kind = "scheduler"

    def __init__(self, settings: Settings, sources: Sources) -> None:
        super().__init__(settings, log, "what is due waits")
        broker, cron = Broker.of(self.connection, settings), CronBroker.of(self.connection, settings)
        self._membership = Membership(self.link, SchedulerListing(settings, cron), settings.name, settings.lease / 3)
        self._maintenance = Maintenance(settings, broker, self.link, ServedQueues(()), log)
        self._ticker = Ticker(cron, self.link, settings.lease, log)
        self._declaring = Declaring(settings, sources, cron, self.link, self.loop, log)
        self._bell = Doorbell(self.connect_blocking, broker.keys, _WAIT)
        self._was_away = False
        self.timers.when(self._bell, self._bell.tick)
        # Ticks come before declarations: a changed plan starts where the old plan stopped.
        self.timers.when(self._membership, _Guard("schedulers", self._membership.tick).tick, redis=True)
        self.timers.when(self._maintenance, self._maintenance.tick, redis=True)
        self.timers.when(self._ticker, _Guard("cron entries", self._ticker.tick).tick, redis=True)
        self.timers.when(self._declaring, _Guard("declared cron entries", self._declaring.tick).tick, redis=True)
        self.closing.callback(self._bell.drop)
        self.closing.callback(self._declaring.close)

    def boot(self) -> None:
        """Enter the list of schedulers and begin to load the declaring modules."""
        self._membership.enter()
        log.info("scheduler %s (pid %d); Redis: %s", self._membership.name, os.getpid(), describe(self.connection))
        self._declaring.load()

    def due(self, now: float) -> None:
        """Obey HUP; store declarations again after an outage; wait at the doorbell."""
        if self.signals.reload:
            self.signals.reload = False
            log.info("reload: what code declares is read again")
            self._declaring.load()
        was_away, self._was_away = self._was_away, self.link.away_since is not None
        if was_away and not self._was_away:
            self._declaring.repeat(min(_SETTLED, self.settings.lease))
        if not self._was_away:
            self._bell.arm([SCHEDULER_BELL])
        self.loop.follow("doorbell", self._bell.fileno(), self._on_bell)

    def end(self) -> int:
        """Leave the list of schedulers; return 0."""
        try:
            self._membership.leave()
        except (RedisAway, CallRefused):
            log.warning("could not report the end to Redis; it takes this scheduler for dead after %.0f s", self.settings.lease)
        log.info("scheduler %s ended", self._membership.name)
        return 0

    def _on_bell(self) -> None:
        if self._bell.receive() is not False:
            self._ticker.next_at = 0.0
            self._maintenance.due(0.0)

    # -- status

    def status(self) -> tuple[str, bool]:
        """Return `away` or `idle`; ready once the declarations are stored."""
        return "away" if self.link.away_since else "idle", self._declaring.done and not self.link.outdated

    def measure(self, figures: Figures) -> Callable[[Figures], object] | None:
        """Add duties and ticks."""
        self._maintenance.measure(figures)
        self._ticker.measure(figures)
        return None

    def live(self) -> HealthReport:
        """Report that the loop turns: otherwise nothing would answer."""
        return HealthReport([], {"scheduler": self._membership.name, "pid": os.getpid()})

    def ready(self) -> HealthReport:
        """Report whether Redis answers and the declarations are loaded."""
        reasons = [*self.link.trouble]
        if not self._declaring.done:
            reasons.append("what code declares is being read")
        return HealthReport(reasons, self.live().facts)
