"""Reports of a long job: its progress, and the cursor from which another run continues. Loaded by the first job that reports."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic

from fusion.exceptions import JobInterrupted, PayloadTooLarge
from fusion.kernel import defaults
from fusion.kernel.progress import to_progress
from fusion.kernel.sentences import FIELD_SIZE
from fusion.kernel.serializers import JSONSerializer

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any, Protocol

    class WorkerSocket(Protocol):
        """The socket to the worker."""

        def send(self, fields: dict[bytes, bytes]) -> None:
            """Send a frame."""

        def offer(self, fields: dict[bytes, bytes]) -> bool:
            """Send a frame unless that would wait. Return True if it was sent."""

        def asked_to_end(self) -> bool:
            """Return True if the worker wants this process to end when it can."""

        def wait_for(self, key: bytes, value: bytes) -> bool:
            """Wait for a frame of the worker with this field. False if none can come any more."""


#: Seconds between two checks whether the worker wants to end, as steps may be much shorter.
_LOOK = 0.005
_NOTHING = object()


class Steps:
    """Sends progress and cursors to the worker, with a rate limit. The newest unsent ones go with the outcome."""

    def __init__(self, line: WorkerSocket | None, raw_cursor: bytes | None, serializer: JSONSerializer) -> None:
        """`raw_cursor`: the encoded cursor of an earlier run."""
        self._line, self._serializer = line, serializer
        self._raw, self._value = raw_cursor, _NOTHING
        self._progress: bytes | None = None
        self._moved = self._iterated = self.interrupted = False
        self._room, self._room_at = float(defaults.REPORT_BURST), monotonic()
        self._look_at, self._asked = 0.0, False
        self._waits, self._waiting = 0, allocate_lock()

    # -- progress

    def progress(self, done: float, total: float | None, note: str) -> None:
        """Record the job's progress, and send it if that is due."""
        self._progress = to_progress(done, total, note)
        self._send_some()

    # -- cursors

    @property
    def cursor(self) -> Any:
        """Return the last checkpoint of this run or an earlier one."""
        if self._value is _NOTHING:
            self._value = None if self._raw is None else self._serializer.loads(self._raw)
        return self._value

    def checkpoint(self, cursor: Any, wait: bool) -> None:
        """Record where another run should continue, and send that if it is due. `wait`: until it is stored. JobInterrupted if the worker
        ends."""
        if type(cursor) is not int:
            self._raw = self._encoded(cursor)
        else:  # the usual case: it is encoded only when it is sent
            self._raw = None
        self._value, self._moved = cursor, True
        if self._wants_end():
            self._interrupt()
        if wait:
            self._send_and_wait()
        else:
            self._send_some()

    def iterate(self, source: Any, key: Callable[[Any], Any] | None) -> Iterator[Any]:
        """Yield the items of `source` that no run has finished yet, with a checkpoint after each."""
        if key is not None and not callable(source):
            raise TypeError(
                "iterate(cursor=...): the source must be a function, which is given the last cursor, None at first, and returns what comes after it"
            )
        if self._iterated:
            raise RuntimeError("a job has one cursor, so one iterate(); give several loops their places with checkpoint()")
        self._iterated = True
        at = self.cursor
        if key is None and (not isinstance(at, int | None) or isinstance(at, bool)):
            raise RuntimeError(f"the cursor of this job, {at!r}, is not a count of items: another kind of loop stored it")
        items = iter(source(at) if callable(source) else islice(source, at or 0, None))
        return self._keyed(items, key) if key is not None else self._counted(items, at or 0)

    def _counted(self, items: Iterator[Any], done: int) -> Iterator[Any]:
        for item in items:
            yield item
            done += 1
            self.checkpoint(done, wait=False)

    def _keyed(self, items: Iterator[Any], key: Callable[[Any], Any]) -> Iterator[Any]:
        for item in items:
            cursor = key(item)  # before the work, which may change the item
            yield item
            self.checkpoint(cursor, wait=False)

    def _encoded(self, cursor: Any) -> bytes:
        raw = self._serializer.dumps(cursor)
        if len(raw) > defaults.MAX_CURSOR:
            raise PayloadTooLarge(
                f"the cursor {FIELD_SIZE.format(n=len(raw), n_limit=defaults.MAX_CURSOR)}. Keep what was found elsewhere, and here where it is"
            )
        return raw

    # -- to the worker

    def _wants_end(self) -> bool:
        now = monotonic()
        if not self._asked and self._line is not None and now >= self._look_at:
            self._look_at = now + _LOOK
            self._asked = self._line.asked_to_end()
        return self._asked

    def _interrupt(self) -> None:
        self.interrupted = True
        raise JobInterrupted("the worker ends: this job goes on at its cursor in another run")

    def _send_some(self) -> None:
        now = monotonic()
        self._room = min(defaults.REPORT_BURST, self._room + (now - self._room_at) * defaults.REPORT_RATE)
        self._room_at = now
        if self._room >= 1 and self._line is not None and self._line.offer({b"kind": b"report", **self.unsent()}):
            self._room -= 1
            self._sent()

    def _send_and_wait(self) -> None:
        if self._line is None:
            return
        with self._waiting:  # a thread must not read the answer for another thread
            self._waits += 1
            number = b"%d" % self._waits
            self._line.send({b"kind": b"report", **self.unsent(), b"wait": number})
            if not self._line.wait_for(b"stored", number):
                self._interrupt()  # the outcome contains the cursor, which may have been lost on the way
            self._sent()

    def unsent(self) -> dict[bytes, bytes]:
        """Return the reports that the worker does not have yet."""
        found = {b"progress": self._progress} if self._progress is not None else {}
        if self._moved:
            if self._raw is None:
                self._raw = self._serializer.dumps(self._value)
            found[b"cursor"] = self._raw
        return found

    def _sent(self) -> None:
        self._progress, self._moved = None, False

    def end(self) -> None:
        """Send nothing from now on: the rest goes with the outcome."""
        self._line = None
