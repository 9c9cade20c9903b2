"""How many jobs one turn may take for processes that run many at once."""

from __future__ import annotations

#: For coroutines: all claimed jobs begin at once, and their leases are renewed from then on.
MOST = 50
#: For threads, for each process, while turns are short.
FEW = 16
#: Seconds below which a turn counts as short. It is longer with a distant Redis or on a busy machine.
_SHORT = 0.008
#: Weight of the last turn in the expected time of the next one.
_NEW = 0.1


class TurnSize:
    """Chooses small turns for threads: jobs begin as soon as their turn ends, some while Redis answers the next one.

    In threads jobs begin one after another, so after a large turn threads idle until the last job begins. But small turns mean more turns.
    If any turn takes long, `most` is as large as for coroutines, which begin far faster.
    """

    def __init__(self, horses: int, *, threads: bool) -> None:
        self._few = min(MOST, FEW * horses) if threads else MOST
        self._turn = 0.0

    def exchanged(self, seconds: float) -> None:
        """Record how long a turn with jobs or outcomes took, delivery included."""
        self._turn += (seconds - self._turn) * _NEW

    @property
    def most(self) -> int:
        """Jobs that the next turn may take."""
        return self._few if self._turn < _SHORT else MOST
