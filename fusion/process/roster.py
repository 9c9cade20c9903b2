"""Which queues a worker serves: names and wildcards, in the order that makes equal classes take turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from fusion.exceptions import ConfigurationError
from fusion.store.keys import check_queue_name, is_pattern


class Roster:
    """Exact names are served from the start; wildcards are matched against the known queues again and again, as queues appear."""

    def __init__(self, names: Iterable[str]) -> None:
        unique = list(dict.fromkeys(names))
        self.patterns = [name for name in unique if is_pattern(name)]
        self._queues = [check_queue_name(name) for name in unique if not is_pattern(name)]

    @property
    def queues(self) -> Sequence[str]:
        """Queue names, the one to look at first in front."""
        return self._queues

    def check(self, wrong_types: Callable[[Sequence[str]], Sequence[str]]) -> None:
        """ConfigurationError if a key of one of the queues holds something else."""
        if wrong := wrong_types(self._queues):
            raise ConfigurationError(
                f"{wrong[0]}: another program's data, an RQ queue perhaps; drain it there, or give this fleet a prefix of its own"
            )

    def refresh(self, known: Callable[[], Sequence[str]]) -> bool:
        """Look for queues that match a wildcard; True if one is new. Costs nothing without wildcards."""
        if not self.patterns:
            return False
        new = [n for n in known() if n not in self._queues and any(fnmatchcase(n, p) for p in self.patterns)]
        self._queues += new
        return bool(new)

    def served(self, queue: str) -> None:
        """The queue had its turn: the others of its class come before it."""
        if len(self._queues) > 1 and queue in self._queues:
            at = self._queues.index(queue) + 1
            self._queues = self._queues[at:] + self._queues[:at]
