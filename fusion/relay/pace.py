"""The pace for a failing sink: how many events a relay sends at a time, and when it tries again."""

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

    After five failures in a row the breaker opens: one event at a time is tried until one succeeds, and then more and more. An error that
    is not an outage halves the batch, so that the event that causes it is soon alone.
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
        """True if the breaker is open: one event at a time is tried."""
        return self.failures >= _PATIENCE

    @property
    def hopeless(self) -> bool:
        """True if the one event that is tried keeps failing, each time without an outage."""
        return self._doubt >= _LENIENCY

    def succeeded(self) -> None:
        """Note a success: the next batch is twice as large."""
        self._backoff.reset()
        self._doubt = 0
        self.size = min(self._most, self.size * 2)

    def gave_up(self) -> None:
        """Note that one event was given up: the count of failures starts again for the next event."""
        self._doubt = 0

    def failed(self, sent: int, retry_after: float | None, *, outage: bool) -> float:
        """Note that sending `sent` events failed. Return the seconds until the next try. `retry_after`: seconds that the sink asked for."""
        if not outage and sent > 1:
            self.size = sent // 2
            return _HALVING_PAUSE
        pause = self._backoff.next()
        self._doubt = 0 if outage else self._doubt + 1
        if self.open:
            self.size = 1
        return max(pause, min(retry_after or 0.0, _LONGEST_ASKED))
