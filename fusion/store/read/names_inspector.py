"""Looks up what has a given name, except jobs."""

from __future__ import annotations

from typing import Any

from fusion.store.read.base import InspectorBase


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
