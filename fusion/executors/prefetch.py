"""How many jobs may wait in a warm horse behind the one that it runs."""

from __future__ import annotations

from fusion.kernel import defaults

#: Most jobs that wait in one horse.
MOST = 16
#: Seconds after which a run is no longer short: nothing waits behind it, and Redis learns that it began.
LOOK, _LONGEST_LOOK = 0.01, 0.05
#: Jobs to measure before the first estimate.
_SEEN = 8
#: Weights in the average: of a run that took longer than expected, and of one that did not.
_UP, _DOWN = 0.5, 0.05
#: Least seconds that a job counts.
_LEAST = 1e-5
#: Weight of the latest turn; and jobs that any turn may take: with fewer, the turn would cost too much for each job.
_NEW, _FEW = 0.1, 4
#: Turns for which a run may go on before it counts as long: on a busy machine it did not get all of that time.
_TURNS = 3


class PrefetchEstimator:
    """Estimates the time of the next jobs from the last ones. The estimate rises fast and falls slowly.

    `budget`: seconds of work that may wait in a horse. A turn with Redis should take no longer either: a job that comes meanwhile waits for
    its end, whatever its class.
    """

    def __init__(self, budget: float = defaults.CLAIM_AHEAD / 1000) -> None:
        self._budget = budget
        self._seen = 0
        self._expected = 0.0
        self._turn = self._moved = 0.0
        #: Seconds after which a run is a long one.
        self.patience = LOOK

    def saw(self, seconds: float) -> None:
        """Record that a job took this many seconds."""
        self._seen += 1
        off = seconds - self._expected
        self._expected += off * (_UP if off > 0 else _DOWN)

    def exchanged(self, seconds: float, jobs: int) -> None:
        """Record one exchange with Redis: how long it took, delivery to processes included, and how many jobs it committed or claimed."""
        self._turn += (seconds - self._turn) * _NEW
        self._moved += (jobs - self._moved) * _NEW
        self.patience = min(max(LOOK, _TURNS * self._turn), _LONGEST_LOOK)

    @property
    def depth(self) -> int:
        """Jobs that may wait behind the one that a horse runs."""
        return min(MOST, int(self._budget / max(self._expected, _LEAST))) if self._seen >= _SEEN else 0

    @property
    def most(self) -> int:
        """Jobs that one turn may take."""
        return max(_FEW, int(self._budget * self._moved / self._turn)) if self._turn else MOST
