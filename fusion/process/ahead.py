"""How many jobs a warm horse is given ahead, so that it need not wait for the worker and Redis between two short ones."""

from __future__ import annotations

#: Seconds of work that may wait in one horse, and jobs.
BUDGET, MOST = 0.004, 16
#: Jobs seen before anything is foreseen.
_SEEN = 8
#: Weights of a run that took longer than expected, and of one that did not.
_UP, _DOWN = 0.5, 0.05
#: Least seconds a job counts for.
_LEAST = 1e-5


class Foresight:
    """Expects of the next jobs what the last ones took: longer ones are believed fast, shorter ones slowly."""

    def __init__(self) -> None:
        self._seen = 0
        self._expected = 0.0

    def saw(self, seconds: float) -> None:
        """A job took so long."""
        self._seen += 1
        off = seconds - self._expected
        self._expected += off * (_UP if off > 0 else _DOWN)

    @property
    def depth(self) -> int:
        """Jobs that may wait behind the one a horse runs."""
        return min(MOST, int(BUDGET / max(self._expected, _LEAST))) if self._seen >= _SEEN else 0
