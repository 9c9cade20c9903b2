"""Operations on many jobs, as their records are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusion.kernel import defaults
from fusion.store.layout import codec
from fusion.store.read.base import InspectorBase


class OperationInspector(InspectorBase):
    """Reads operations. What their fields mean, `fusion.operations` knows."""

    def listed(self, offset: int, limit: int) -> list[str]:
        """A page of operations: those that run, then the others, the one first that ended last."""
        return self._page(self.keys.operations, offset, limit, desc=True)

    def count(self) -> int:
        """Operations that are kept."""
        found: Any = self.connection.zcard(self.keys.operations)
        return int(found)

    def records(self, operations: Sequence[str]) -> tuple[float, list[dict[str, str]]]:
        """The server's clock in ms and the fields of these operations; none of one that is gone."""
        return self._clock_and_hashes([self.keys.operation(one) for one in operations], raise_on_error=False)

    def has_carriers(self) -> bool:
        """True if a worker, a courier or a scheduler lives: they carry on what others left."""
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
