"""Which queues a person may see: names and wildcards, matched like a worker's wildcards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Scope:
    """`queues`: names and wildcards (`sms-*`, `a?c`, `[ab]*`); None for all queues, Fusion's own ones included."""

    queues: tuple[str, ...] | None = None

    @property
    def all(self) -> bool:
        """True for every queue, and for things that belong to none."""
        return self.queues is None

    def allows(self, queue: str) -> bool:
        """Return True if this queue may be seen. As for workers, no wildcard matches Fusion's own (`failed`, `_...`)."""
        if self.queues is None:
            return True
        if queue == "failed" or queue.startswith("_"):
            return queue in self.queues
        return any(queue == name or fnmatchcase(queue, name) for name in self.queues)

    def covers(self, name: str) -> bool:
        """Return True if all queues that a name or wildcard matches may be seen, as far as is obvious: `sms-eu-*` is within `sms-*`."""
        if self.queues is None or name in self.queues:
            return True
        if not any(char in name for char in "*?["):
            return self.allows(name)
        return any(
            one.endswith("*") and not any(c in one[:-1] for c in "*?[") and name.startswith(one[:-1]) for one in self.queues
        )

    def of(self, queues: Iterable[str]) -> list[str]:
        """Return those of these queues that may be seen, in their order."""
        return [queue for queue in queues if self.allows(queue)]


#: The scope that hides nothing.
EVERYTHING = Scope()
