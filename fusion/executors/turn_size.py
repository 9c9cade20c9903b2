"""How many jobs one turn may take for processes that run many at once."""

from __future__ import annotations

#: What is claimed is begun at once, and its lease is renewed from then on.
MOST = 50
#: For threads, per process, as long as turns are short.
FEW = 16
#: Seconds that a turn is short for: it is not with a Redis that is far away, or amid much else.
_SHORT = 0.008
#: How much the last turn counts in what the next one is expected to take.
_NEW = 0.1


class TurnSize:
    """Small turns for threads: their jobs begin as soon as the turn has come to its end, some while Redis gives out the next.

    In threads jobs begin one after another, so whoever claims many at once has threads idle that wait for the last of them. Small turns are more
    turns; where one takes long whatever it brings, `most` is as large as for coroutines, which begin far faster.
    """

    def __init__(self, horses: int, *, threads: bool) -> None:
        self._few = min(MOST, FEW * horses) if threads else MOST
        self._turn = 0.0

    def exchanged(self, seconds: float) -> None:
        """Record how long a turn took that brought jobs or told outcomes, delivery included."""
        self._turn += (seconds - self._turn) * _NEW

    @property
    def most(self) -> int:
        """Jobs that the next turn may take."""
        return self._few if self._turn < _SHORT else MOST
