"""RQ's list of running CronSchedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis import Redis

from fusion.rq.connections import given
from fusion.rq.defaults import DEFAULT_CRON_SCHEDULER_TTL
from fusion.rq.exceptions import DuplicateSchedulerError, SchedulerNotFound
from fusion.rq.hints import missing
from fusion.settings import get_settings
from fusion.store.layout.keys import Keys
from fusion.store.write.rq_store import RQStore

if TYPE_CHECKING:
    from fusion.rq.cron import CronScheduler


def store(connection: Redis) -> RQStore:
    """Return the store of what RQ's programs show."""
    return RQStore(given(connection), get_settings().prefix)


def get_registry_key() -> str:
    """Return the key of the list."""
    return Keys(get_settings().prefix).rq_cron_schedulers


def register(cron_scheduler: CronScheduler, pipeline: Any = None) -> None:
    """Enter a CronScheduler. DuplicateSchedulerError if one of its name showed in the last two minutes that it runs."""
    if not store(cron_scheduler.connection).enter(cron_scheduler.name, DEFAULT_CRON_SCHEDULER_TTL):
        raise DuplicateSchedulerError(f"CronScheduler '{cron_scheduler.name}' is already registered")


def unregister(cron_scheduler: CronScheduler, pipeline: Any = None) -> None:
    """Remove a CronScheduler. SchedulerNotFound if it is not there."""
    if not store(cron_scheduler.connection).leave(cron_scheduler.name):
        raise SchedulerNotFound(f"CronScheduler '{cron_scheduler.name}' not found in registry")


def get_keys(connection: Redis) -> list[str]:
    """Return the names, the one that was silent for longest first."""
    return store(connection).schedulers()


def cleanup(connection: Redis, threshold: int = DEFAULT_CRON_SCHEDULER_TTL) -> int:
    """Remove those that were silent for this time; return how many."""
    return store(connection).forget_schedulers(threshold)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
