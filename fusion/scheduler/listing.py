"""The list of schedulers in Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusion.runtime.membership import Held, own_fields
from fusion.runtime.redis_link import refusable
from fusion.settings import Settings
from fusion.store.write.cron_broker import CronBroker


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
