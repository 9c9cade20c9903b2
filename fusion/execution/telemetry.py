"""Records of a run for a collector, on their way to the worker: spans, envelopes. The job's process itself talks to no collector."""

from __future__ import annotations

import _thread
from collections.abc import Callable, Mapping
from os import getpid
from time import monotonic
from types import MappingProxyType

from fusion.kernel import defaults
from fusion.kernel.timeouts import held

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    Send = Callable[[dict[bytes, bytes]], object]

#: Most bytes of one frame's records: a worker takes frames of `max_result`, which may be small, and 64 KiB more.
_PIECE = 48 * 1024
#: Bytes that are sent at once while the task runs; and seconds after which fewer are, so that a killed job leaves what it had recorded.
_ENOUGH, _SOON = 16 * 1024, 0.1


class JobTelemetry:
    """The records of one run, for any number of collectors. Any thread may add one. What the worker is not ready for waits, at most
    `TELEMETRY_JOB` bytes in a whole run; more is dropped, and counted."""

    def __init__(self, send: Send, offer: Callable[[dict[bytes, bytes]], bool] | None) -> None:
        """`send`: sends a frame to the worker. `offer`: does that only if it need not wait, and returns True if it did."""
        self._send, self._offer = send, offer
        self._lock, self._owner = _thread.allocate_lock(), getpid()
        self._waiting: dict[str, list[bytes]] = {}
        self._dropped: dict[str, int] = {}
        self._left, self._size, self._sent_at = defaults.TELEMETRY_JOB, 0, monotonic()
        self._ended = False

    def add(self, to: str, record: bytes, *, own: bool = False) -> None:
        """Take a record for the collector `to`. `own`: it is the one of the run itself, for which there is always room. Raise nothing, and wait
        for nobody."""
        with held(), self._lock:
            size = len(record)
            if self._ended or getpid() != self._owner or size > _PIECE or (size > self._left and not own):
                self._dropped[to] = self._dropped.get(to, 0) + 1
                return
            self._waiting.setdefault(to, []).append(record)
            self._left -= size
            self._size += size
            # The run's own is among the last: should the process die before, its worker makes one.
            if not own and (self._size >= _ENOUGH or monotonic() - self._sent_at >= _SOON):
                self._offer_all()

    def flush(self) -> None:
        """Send what waits now, if the worker is ready for it: what must be seen while the task runs, also if it is killed."""
        with held(), self._lock:
            if getpid() == self._owner and not self._ended:
                self._offer_all()

    def _offer_all(self) -> None:
        if self._offer is None:
            return
        self._sent_at = monotonic()
        try:
            self._send_all(self._offer)
        except OSError:  # the task closed the socket: the outcome meets the same
            self._offer = None

    def end(self) -> None:
        """Send what is left, before the outcome. Take nothing more. OSError if the socket is gone."""
        with held(), self._lock:
            self._ended = True
            if getpid() == self._owner:
                self._send_all(self._send, last={b"last": b"1"})

    def _send_all(self, send: Send, last: Mapping[bytes, bytes] = MappingProxyType({})) -> None:
        """Send what waits, in frames that are not too long; until one is refused. `last`: fields of the last ones."""
        for to in {**self._waiting, **self._dropped}:
            records = self._waiting.get(to, [])
            while records or self._dropped.get(to):
                count = size = 0
                while count < len(records) and size + len(records[count]) <= _PIECE:
                    size += len(records[count])
                    count += 1
                frame = {b"kind": b"telemetry", b"to": to.encode(), b"dropped": b"%d" % self._dropped.get(to, 0)}
                for at, record in enumerate(records[:count]):
                    frame[b"%d" % at] = record
                if send(frame if count < len(records) else {**frame, **last}) is False:
                    return
                del records[:count]
                self._size -= size
                self._dropped[to] = 0


def records_of(frame: dict[bytes, bytes]) -> list[bytes]:
    """Return the records of a frame, in their order."""
    found: list[bytes] = []
    while (record := frame.get(b"%d" % len(found))) is not None:
        found.append(record)
    return found
