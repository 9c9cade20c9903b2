"""Operations on many jobs, as their records store them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusion.kernel import defaults
from fusion.store.layout import codec
from fusion.store.read.base import InspectorBase


class OperationInspector(InspectorBase):
    """Reads operations. `fusion.operations` interprets their fields."""

    def listed(self, offset: int, limit: int) -> list[str]:
        """Return a page of operations: the running ones, then the others, the last to end first."""
        return self._page(self.keys.operations, offset, limit, desc=True)

    def count(self) -> int:
        """Return how many operations are kept."""
        found: Any = self.connection.zcard(self.keys.operations)
        return int(found)

    def records(self, operations: Sequence[str]) -> tuple[float, list[dict[str, str]]]:
        """Return the server's clock in ms and the fields of these operations; empty for one that is gone."""
        return self._clock_and_hashes([self.keys.operation(one) for one in operations], raise_on_error=False)

    def has_carriers(self) -> bool:
        """Return True if a live worker, courier or scheduler can resume abandoned operations."""
        members, schedulers, (seconds, _) = self._batch(
            lambda pipe: (
                pipe.smembers(self.keys.fleet),
                pipe.zrange(self.keys.schedulers, 0, -1),
                pipe.time(),
            )
        )
        keys = [self.keys.worker(codec.text(name)) for name in members]
        keys += [self.keys.scheduler(codec.text(name)) for name in schedulers]
        rows = (
            self._batch(lambda pipe: [pipe.hmget(key, "beat_ms", "lease_ms") for key in keys], raise_on_error=False)
            if keys
            else []
        )
        return any(
            not isinstance(row, Exception)
            and seconds * 1000 - codec.number(row[0]) <= codec.number(row[1], int(defaults.LEASE * 1000))
            for row in rows
        )
