"""RQ's suspension of all workers."""

from __future__ import annotations

from typing import Any

from redis import Redis

from fusion.rq.connections import given
from fusion.rq.hints import missing
from fusion.store.access import broker_of, inspector_of


def suspend(connection: Redis, ttl: int | None = None) -> None:
    """Have all workers start no more jobs, for `ttl` seconds or until `resume`."""
    broker_of(given(connection)).suspend(ttl)


def resume(connection: Redis) -> None:
    """Have the workers go on."""
    broker_of(given(connection)).resume()


def is_suspended(connection: Redis, worker: Any = None) -> bool:
    """Return True while the workers are suspended."""
    return inspector_of(given(connection)).totals().suspended


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
