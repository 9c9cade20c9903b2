"""Reads current activity for people: names in use, what runs now, what failed last. Every read is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusion.store.layout import codec
from fusion.store.layout.names import is_reserved
from fusion.store.read.base import InspectorBase
from fusion.store.read.totals import Counters, read_counters

#: Most queues, and most ids of each of their sets, that are read to collect names.
_QUEUES, _EACH = 50, 50


class Glance(InspectorBase):
    """Quick reads. Never changes state; raises redis-py's errors as they come."""

    def queues(self) -> list[str]:
        """List the queues that are used, sorted."""
        members: Any = self.connection.smembers(self.keys.queues)
        names = (self.keys.name_of_queue(codec.text(key)) for key in members)
        return sorted(name for name in names if not is_reserved(name))

    def workers(self) -> list[str]:
        """List the registered workers, stock RQ's included, sorted."""
        members: Any = self.connection.smembers(self.keys.workers)
        return sorted(self.keys.name_of_worker(codec.text(key)) for key in members)

    def jobs(self) -> list[str]:
        """List job ids that a user may want to name: the newest failures, running jobs, the next in each queue, and those due soonest."""
        names = self.queues()[:_QUEUES]
        keys = self.keys
        rows = self._batch(
            lambda pipe: (
                pipe.zrange(keys.failed, 0, 4 * _EACH - 1, desc=True),
                [pipe.zrange(keys.wip(name), 0, _EACH - 1) for name in names],
                [pipe.zrange(key(name), 0, _EACH - 1, desc=True) for name in names for key in (keys.queue, keys.fifo)],
                pipe.zrange(keys.scheduled, 0, _EACH - 1),
            ),
            raise_on_error=False,
        )
        ids = (codec.text(job_id) for row in rows if isinstance(row, list) for job_id in row)
        return list(dict.fromkeys(ids))

    def failed(self, limit: int) -> list[str]:
        """List the newest failed jobs, the last one first."""
        return self._page(self.keys.failed, 0, limit, desc=True)

    def counters(self, queues: Sequence[str]) -> list[Counters]:
        """Read the lifetime counters of queues in one round trip; empty for a key of another program."""
        rows = self._batch(lambda pipe: [pipe.hgetall(self.keys.totals(name)) for name in queues], raise_on_error=False)
        return [read_counters(row if isinstance(row, dict) else {}) for row in rows]


class NamesInspector(InspectorBase):
    """Looks a name up among everything that has names or ids."""

    def kinds(self, name: str) -> list[str]:
        """Return which of these it is: `queue`, `worker`, `batch`, `cron entry`, `concurrency key`, `operation`, `failure group`. One round
        trip."""
        keys = self.keys
        asks: dict[str, Any] = {
            "queue": lambda pipe: pipe.sismember(keys.queues, keys.queue(name)),
            "worker": lambda pipe: pipe.exists(keys.worker(name)),
            "batch": lambda pipe: pipe.exists(keys.batch(name)),
            "cron entry": lambda pipe: pipe.zscore(keys.cron_due, name),
            "concurrency key": lambda pipe: pipe.zscore(keys.limits, name),
            "operation": lambda pipe: pipe.exists(keys.operation(name)),
            "failure group": lambda pipe: pipe.zscore(keys.failures, name),
        }
        found = self._batch(lambda pipe: [ask(pipe) for ask in asks.values()], raise_on_error=False)
        return [
            kind for kind, one in zip(asks, found, strict=True) if not isinstance(one, Exception) and one not in (None, 0, False)
        ]
