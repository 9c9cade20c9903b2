"""A place among the processes that a supervisor keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fusion.runtime.backoff import Backoff
from fusion.runtime.child_process import Child

#: Seconds of the first pause in a crash loop, and of the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0


@dataclass(slots=True, eq=False)
class Post:
    """A place for one process: the process that runs there, those that are leaving, and when the next may start."""

    label: str
    arguments: Sequence[str]
    child: Child | None = None
    leaving: list[Child] = field(default_factory=list)
    start_at: float = 0.0
    #: No pause after one crash; after more in a row, longer and longer ones.
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, free=1))
    done: bool = False

    @property
    def children(self) -> list[Child]:
        """Return all processes of this place."""
        return [*self.leaving, *([self.child] if self.child else ())]
