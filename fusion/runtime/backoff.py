"""Growing pauses between attempts that fail."""

from __future__ import annotations

import random

#: Most doublings of a pause: more would only make the float needlessly large.
_DOUBLINGS = 20


class Backoff:
    """Counts failures in a row and says how long to wait after each.

    - the first `free` failures cost no pause;
    - then `first` seconds, each pause twice the one before, `longest` at most;
    - with `jitter` each pause is cut to between half and all of its length at random, so that many processes that failed together don't
      come back together.
    """

    __slots__ = ("_first", "_free", "_jitter", "_longest", "failures")

    def __init__(self, first: float, longest: float, *, jitter: bool = False, free: int = 0) -> None:
        self._first, self._longest, self._jitter, self._free = first, longest, jitter, free
        #: Failures since the last `reset`.
        self.failures = 0

    def next(self) -> float:
        """Count a failure; return the seconds to wait before the next try."""
        self.failures += 1
        if self.failures <= self._free:
            return 0.0
        pause: float = min(self._longest, self._first * 2.0 ** min(self.failures - self._free - 1, _DOUBLINGS))
        return pause * random.uniform(0.5, 1.0) if self._jitter else pause

    def reset(self) -> None:
        """Start again with the first pause, after a success."""
        self.failures = 0
