"""The part of the Broker for the trash: deleted jobs, kept for an hour."""

from __future__ import annotations

from collections.abc import Sequence

from fusion.store.scripting.host import run
from fusion.store.write.queue_calls import QueueCalls


class TrashBroker(QueueCalls):
    """Puts jobs into the trash, and restores them."""

    def restore(self, job_ids: Sequence[str], nonce: str) -> list[str]:
        """Restore jobs from the trash. Returns an answer per id: `restored`, `missing` (it is not there, or no longer), `taken` (a job of
        this id lives), `duplicate <id>` (that job has its unique key), `full` (its queue takes no more), `expired` (its ttl is over), `error:
        ...` (a broken key)."""
        return self._to_each("restore", {"queues": self.keys.queues}, {"nonce": nonce}, job_ids)

    def empty_trash(self, limit: int = 300) -> tuple[int, bool]:
        """Delete up to `limit` jobs in the trash for good; returns how many, and whether there are more."""
        dropped, again = self._script("empty_trash")({}, {"limit": limit})
        return int(dropped), bool(again)

    def empty_to_trash(self, queue: str, limit: int = 100) -> tuple[int, bool, int]:
        """Do what `empty` does, but put the jobs into the trash; returns also for how many of them it had room."""
        return self.empty_call(queue, limit, keep=True)()

    def delete_to_trash(self, job_ids: Sequence[str]) -> list[str]:
        """Do what `delete` does, but put the jobs into the trash: `kept` in place of `deleted` for those for which it had room."""
        return self._to_each("delete", {}, {"keep": 1, "operation": ""}, job_ids)

    def may_keep(self) -> bool:
        """Do what `may_keep_steps` describes."""
        return run(self.may_keep_steps())
