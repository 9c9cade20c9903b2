"""RQ's list of the names of cron jobs that have enqueued something."""

from __future__ import annotations

from typing import Any

from redis import Redis

from fusion.rq.cron_scheduler_registry import store
from fusion.rq.defaults import DEFAULT_CRON_JOB_HISTORY_TTL
from fusion.rq.hints import missing
from fusion.settings import get_settings
from fusion.store.layout.keys import Keys


def get_registry_key() -> str:
    """Return the key of the list."""
    return Keys(get_settings().prefix).rq_cron_jobs


def add(name: str, connection: Redis, enqueue_timestamp: float | None = None) -> None:
    """Note that a cron job has enqueued something, now or at this time."""
    store(connection).note_cron_name(name, enqueue_timestamp, DEFAULT_CRON_JOB_HISTORY_TTL)


def get_names(connection: Redis, cleanup: bool = True) -> list[str]:
    """Return the names, that of the oldest enqueue first. With `cleanup` those that enqueued nothing for a year are forgotten."""
    return store(connection).cron_names(DEFAULT_CRON_JOB_HISTORY_TTL if cleanup else None)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
