"""The part of the Broker that deals with the trash: jobs that were deleted, for an hour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusion.store.scripting.host import ScriptHost

#: Share of the server's memory over which deleted jobs are not kept.
_FULL = 0.8


class TrashBroker(ScriptHost):
    """What is thrown away, and what comes back."""

    def restore(self, job_ids: Sequence[str], nonce: str) -> list[str]:
        """Bring jobs back out of the trash. An answer per id: `restored`, `missing` (it is not there, or no longer), `taken` (a job of this id
        lives), `duplicate <id>` (that job has its unique key), `full` (its queue takes no more), `expired` (its ttl is over), `error: ...` (a
        broken key)."""
        return self._to_each("restore", {"queues": self.keys.queues}, {"nonce": nonce}, job_ids)

    def empty_trash(self, limit: int = 300) -> tuple[int, bool]:
        """Forget up to `limit` jobs in the trash for good; returns how many, and whether there are more."""
        dropped, again = self._script("empty_trash")({}, {"limit": limit})
        return int(dropped), bool(again)

    def empty_to_trash(self, queue: str, limit: int = 100) -> tuple[int, bool, int]:
        """As `empty`, but they are put into the trash; returns also for how many of them it had room."""
        deleted, again, kept = self._script("empty")({}, {"queue": queue, "limit": limit, "keep": 1})
        return int(deleted), bool(again), int(kept)

    def delete_to_trash(self, job_ids: Sequence[str]) -> list[str]:
        """As `delete`, but they are put into the trash: `kept` in place of `deleted` for those for which it had room."""
        return self._to_each("delete", {}, {"keep": 1, "operation": ""}, job_ids)

    def may_keep(self) -> bool:
        """Whether the server has the memory to keep what is deleted: no more than 80 % of its `maxmemory` is used. True without one."""
        found: Any = self.connection.info("memory")
        most = int(found.get("maxmemory") or 0)
        return not most or int(found.get("used_memory") or 0) <= most * _FULL
