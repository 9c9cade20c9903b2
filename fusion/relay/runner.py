"""One sink's thread: reads events, has the sink write them, acknowledges them. A sink that fails delays no other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from traceback import extract_tb
from typing import TypeVar

from redis.exceptions import RedisError

from fusion.events.event import STATUSES
from fusion.events.sink import Sink, SinkUnavailable
from fusion.exceptions import SchemaMismatch
from fusion.kernel.failpoints import failpoint
from fusion.kernel.redaction import cut, printable
from fusion.runtime.backoff import Backoff
from fusion.store.stream.reader import EventReader, SinkEvent

log = logging.getLogger("fusion.relay")

T = TypeVar("T")

#: Events that a sink gets at a time.
BATCH = 500
#: Seconds for which events are collected into one write, unless the batch is full earlier.
_GATHER = 0.2
#: Most characters of a sink's error.
_LONGEST = 1000
#: Seconds between two attempts at a Redis that does not answer.
_AWAY_PAUSE = 0.5
#: Seconds after a stop request in which waiting events are still delivered.
_FAREWELL = 2.0
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


class SinkRunner(threading.Thread):
    """Delivers each event at least once. The events that this relay gets keep the order of the stream.

    - a batch is written again until the sink takes it, however long that takes; Redis keeps it for this relay meanwhile;
    - an event that the sink refuses for good is parked; so is a single event that keeps raising another error in the sink;
    - after a stop request it delivers the waiting events while the sink takes them, for at most two seconds; another relay gets the rest.
    """

    def __init__(self, sink: Sink, reader: EventReader, block: float) -> None:
        super().__init__(name=f"sink {sink.name}", daemon=True)
        self.sink = sink
        self._reader, self._block = reader, block
        self._pace = Pace(BATCH)
        self._told_to_stop = threading.Event()
        self._stop_by = float("inf")
        self._said = ""
        #: Events that the sink took, or refused for good; of these the refused ones; and writes that failed.
        self.delivered = self.parked = self.failures = 0
        #: Monotonic times since when Redis, and the sink, have not answered.
        self.away_since: float | None = None
        self.writing_since: float | None = None

    def stop(self) -> None:
        """Ask the thread to deliver the waiting events and to end."""
        self._stop_by = time.monotonic() + _FAREWELL
        self._told_to_stop.set()

    def run(self) -> None:
        """Run the thread: deliver events until `stop` is called."""
        while not self._ended():
            try:
                if not self._round():
                    break
            except Exception as error:  # an error of the relay; errors of the sink are caught earlier
                log.error("sink %s: an error of the relay itself, it goes on: %s", self.sink.name, _named(error))
                self._told_to_stop.wait(_AWAY_PAUSE)
        self.sink.close()

    def _ended(self) -> bool:
        return self._told_to_stop.is_set() and (self._pace.failures > 0 or time.monotonic() > self._stop_by)

    def _round(self) -> bool:
        """Read and deliver one batch. False after a stop request, once nothing is left."""
        stopping = self._told_to_stop.is_set()
        deliveries = self._ask(lambda: self._reader.read(BATCH, 0.0 if stopping else self._block))
        if deliveries:
            self._deliver(deliveries)
        if not deliveries and stopping:
            return False
        if len(deliveries or ()) < BATCH:
            self._told_to_stop.wait(_GATHER)
        return True

    def _ask(self, call: Callable[[], T]) -> T | None:
        """Repeat a call until Redis answers. None if a stop request comes first."""
        while True:
            try:
                answer = call()
            except (RedisError, OSError, SchemaMismatch):
                self.away_since = self.away_since or time.monotonic()
                if self._told_to_stop.wait(_AWAY_PAUSE):
                    return None
            else:
                self.away_since = None
                return answer

    def _deliver(self, deliveries: Sequence[SinkEvent]) -> None:
        while deliveries:
            some = deliveries[: self._pace.size]
            refused, pause = self._write(some)
            if refused is not None:
                failpoint("relay.after_write")
                if self._ask(lambda some=some, refused=refused: self._reader.ack(some, refused)) is None:  # type: ignore[misc]
                    return
                self.delivered += len(some)
                self.parked += len(refused)
                deliveries = deliveries[len(some) :]
            elif self._told_to_stop.wait(pause):
                return

    def _write(self, some: Sequence[SinkEvent]) -> tuple[Mapping[str, str] | None, float]:
        """Have the sink write some events. Return those refused for good (event id -> reason); or None, and the seconds until the next
        try."""
        failpoint("relay.before_write")
        events = [event for _, event in some if self.sink.all_events or event.event in STATUSES]
        self.writing_since = time.monotonic()
        try:
            rejected = self.sink.write(events) if events else ()
            refused = {one.event.id: cut(printable(one.why), _LONGEST) for one in rejected}
        except SinkUnavailable as error:
            why = cut(printable(str(error)), _LONGEST)
            return None, self._failed(len(some), why, error.retry_after, outage=True)
        except Exception as error:
            what = _named(error)
            pause = self._failed(len(some), what, None, outage=False)
            if not self._pace.hopeless:
                return None, pause
            self._pace.gave_up()
            log.error("sink %s: event %s is parked, it can't be written: %s", self.sink.name, events[0].id, what)
            return {events[0].id: what}, 0.0
        finally:
            self.writing_since = None
        if self._pace.failures:
            log.warning("sink %s works again after %d failure(s)", self.sink.name, self._pace.failures)
        self._said = ""
        self._pace.succeeded()
        if refused:
            why = next(iter(refused.values()))
            log.error("sink %s refused %d event(s) for good, they are parked: %s", self.sink.name, len(refused), why)
        return refused, 0.0

    def _failed(self, sent: int, why: str, retry_after: float | None, *, outage: bool) -> float:
        self.failures += 1
        was_open = self._pace.open
        pause = self._pace.failed(sent, retry_after, outage=outage)
        if why != self._said or (self._pace.open and not was_open):
            self._said = why
            log.error("sink %s fails%s: %s", self.sink.name, ", the breaker is open" * self._pace.open, why)
        try:
            self._reader.failing(why, self._pace.failures, open_=self._pace.open)
        except (RedisError, OSError):
            pass  # only for people to see
        return pause


def _named(error: Exception) -> str:
    """Return an error's class and place, without its text, which may contain secrets."""
    frames = extract_tb(error.__traceback__)
    where = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}"
