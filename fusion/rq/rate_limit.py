"""RQ's `RateLimit`: how many jobs of a key may be queued or run at once. The others wait, and Fusion counts them as RQ does."""

from __future__ import annotations

from typing import Any

from redis import Redis

from fusion.rq.connections import given
from fusion.rq.hints import missing
from fusion.store.access import limit_inspector_of


class RateLimit:
    """At most `concurrency` jobs with this key are queued or run at once. It limits how many, not how fast: for that use `fusion.Queue` with
    `rate=`."""

    def __init__(self, key: str, concurrency: Any) -> None:
        if not key:
            raise ValueError("key must not be empty")
        if not isinstance(concurrency, int) or concurrency < 1:
            raise ValueError("concurrency must be an integer of at least 1")
        self.key, self.concurrency = key, concurrency


class RateLimitRegistry:
    """The jobs of one key: a view."""

    def __init__(self, key: str, connection: Redis) -> None:
        self.key, self.connection = key, given(connection)

    @classmethod
    def all(cls, connection: Redis) -> list[RateLimitRegistry]:
        """Return one for each key that is known, up to a thousand."""
        return [cls(key, connection) for key in limit_inspector_of(given(connection)).limit_keys(0, 1000)]

    def _stats(self) -> Any:
        return limit_inspector_of(self.connection).stats(self.key)

    @property
    def concurrency(self) -> int | None:
        """How many may be queued or run at once; None if the key is unknown."""
        found = self._stats()
        return None if found is None else found.max_concurrent

    def get_allowed_job_count(self) -> int:
        """Return how many have a slot: they are queued or run."""
        found = self._stats()
        return 0 if found is None else found.info.held

    def get_rate_limited_job_count(self) -> int:
        """Return how many wait for one."""
        found = self._stats()
        return 0 if found is None else found.info.blocked

    def get_allowed_job_ids(self) -> list[str]:
        """Return the jobs that have a slot, those that run first."""
        return limit_inspector_of(self.connection).members(self.key)[0]

    def get_rate_limited_job_ids(self) -> list[str]:
        """Return the jobs that wait for a slot, the next to get one first."""
        return limit_inspector_of(self.connection).members(self.key)[1]


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
