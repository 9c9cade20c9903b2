"""The pace at which a relay serves a sink that fails: how much it is sent at a time, and when next."""

from __future__ import annotations

from fusion.runtime.backoff import Backoff

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0
#: The longest time a sink may ask for.
_LONGEST_ASKED = 300.0
#: Seconds between two halves of a batch that made the sink raise an error.
_HALVING_PAUSE = 0.05
#: Failures in a row after which the breaker opens, and errors in a row after which an event is given up.
_PATIENCE, _LENIENCY = 5, 3


class Pace:
    """Pauses double from a quarter of a second to half a minute, with jitter.

    After five failures in a row the breaker opens: one event at a time is tried until one gets through, and then more and more. An error
    that is no outage halves what is sent, so that the one event that causes it soon stands alone.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._doubt = 0
        self.size = most
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=True)

    @property
    def failures(self) -> int:
        """Tries in a row that failed."""
        return self._backoff.failures

    @property
    def open(self) -> bool:
        """The breaker is open: one event at a time is tried."""
        return self.failures >= _PATIENCE

    @property
    def hopeless(self) -> bool:
        """The one event that is tried fails again and again, each time otherwise than by an outage."""
        return self._doubt >= _LENIENCY

    def succeeded(self) -> None:
        """Note that the sink took what it was sent: twice as much is sent next."""
        self._backoff.reset()
        self._doubt = 0
        self.size = min(self._most, self.size * 2)

    def gave_up(self) -> None:
        """Note that one event was given up: the next ones get a chance of their own."""
        self._doubt = 0

    def failed(self, sent: int, retry_after: float | None, *, outage: bool) -> float:
        """Note that `sent` events were sent in vain; return the seconds until the next try. `retry_after`: what the sink asked for."""
        if not outage and sent > 1:
            self.size = sent // 2
            return _HALVING_PAUSE
        pause = self._backoff.next()
        self._doubt = 0 if outage else self._doubt + 1
        if self.open:
            self.size = 1
        return max(pause, min(retry_after or 0.0, _LONGEST_ASKED))
