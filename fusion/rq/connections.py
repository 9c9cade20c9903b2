"""RQ's name for the error of a missing connection, and the errors of Redis, which are of redis-py's family, too."""

from __future__ import annotations

from typing import Any

from fusion.exceptions import NoRedisError as NoRedisConnectionException
from fusion.rq.hints import missing
from fusion.store.client.given import RedisFull as RedisFull
from fusion.store.client.given import RedisUnavailable as RedisUnavailable
from fusion.store.client.given import given as given
from fusion.store.client.given import url_for as url_for

__all__ = ["NoRedisConnectionException", "RedisFull", "RedisUnavailable", "given", "url_for"]


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
