"""Which jobs the free slots of a process may take."""

from __future__ import annotations

from typing import NamedTuple

#: Lowest priority that a reserved slot takes: HIGH.
HIGH = 2
#: Any priority.
ANY = 0


class FreeSlots(NamedTuple):
    """Jobs that may be claimed now.

    `floors`: the lowest priority for each free slot, slots for any job first. `ahead`: how many more jobs may be prefetched.
    """

    floors: list[int]
    ahead: int = 0

    def first(self, count: int) -> FreeSlots:
        """Return at most `count` of them."""
        return FreeSlots(self.floors[:count], max(0, min(self.ahead, count - len(self.floors))))


#: No job may be claimed.
NO_SLOTS = FreeSlots([])
