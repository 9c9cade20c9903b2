"""Brings what runs print and log from their processes to the logs of their jobs in Redis."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from math import inf

from redis.exceptions import ResponseError

from fusion.executors.base import Run
from fusion.kernel import defaults
from fusion.kernel.redaction import masked_text
from fusion.runtime.redis_link import RedisLink
from fusion.store.client.connections import one_line
from fusion.store.layout.records import RunLog
from fusion.store.write.broker import Broker

#: Seconds until the first lines of a run are written, and between two writes of one run.
_FIRST, _EVERY = 0.1, 0.5
#: Logs of one call; seconds of one flush, of which masking is the most: all other work of the worker waits meanwhile.
_BATCH, _SLICE = 16, 0.002
#: Most logs that wait, mostly of runs that have ended while Redis is away. Then the oldest go.
_MOST = 500
#: Most characters of a line as it comes; one more than masking looks at.
_LONGEST = 2 * defaults.LOG_LINE + 1
#: Most digits of a time, and of a count.
_DIGITS = 15
#: Seconds between two warnings in this worker's own log.
_REPEAT = 60.0


class Lines:
    """The last lines of one run. Those that were written are masked already, the others as they came."""

    __slots__ = ("due", "left_out", "masked", "raw", "raw_size", "size", "written")

    def __init__(self, due: float) -> None:
        self.due = due
        #: Whether Redis may have some.
        self.written = False
        self.left_out = self.size = self.raw_size = 0
        self.masked: deque[str] = deque()
        self.raw: deque[tuple[str, str]] = deque()

    def add(self, frame: Mapping[bytes, bytes]) -> None:
        """Take the lines of a frame. Its process runs foreign code: what is too long is cut, what is no line of ours has no time."""
        self.left_out += _count(frame.get(b"left_out"))
        for line in frame.get(b"lines", b"").decode("utf-8", "replace").split("\n")[-defaults.LOG_LINES :]:
            at, _, text = line[: _LONGEST + _DIGITS + 1].partition(" ")
            self.raw.append((at if at.isdecimal() and at.isascii() and len(at) <= _DIGITS else "0", text))
            self.raw_size += len(text)
        while len(self.raw) > defaults.LOG_LINES or self.raw_size > 2 * defaults.LOG_BYTES:
            self.raw_size -= len(self.raw.popleft()[1])
            self.left_out += 1

    def mask(self, until: float) -> bool:
        """Mask lines that came, until this time; False if some are left."""
        while self.raw:
            at, text = self.raw.popleft()
            self.raw_size -= len(text)
            line = f"{at} {masked_text(text, defaults.LOG_LINE)}"
            self.masked.append(line)
            self.size += len(line.encode()) + 1
            while len(self.masked) > defaults.LOG_LINES or self.size > defaults.LOG_BYTES:
                self.size -= len(self.masked.popleft().encode()) + 1
                self.left_out += 1
            if time.monotonic() >= until:
                return not self.raw
        return True


class KeptLogs:
    """Holds the last lines of each run, and writes them: of all while they run, and of those that did not finish or are to keep them when they
    have ended. Those of others go, mostly before a line of them was masked or written.

    A write replaces all that Redis has of the run: one that is repeated does no harm. Lines may be lost: those that come too fast, those that
    wait when the worker is killed, and those that a full Redis refuses.
    """

    def __init__(self, broker: Broker, link: RedisLink, log: logging.Logger) -> None:
        self._broker, self._link, self._log = broker, link, log
        #: Runs with something to write, the one that waits longest first.
        self._waiting: dict[Run, Lines] = {}
        self._complain_at = 0.0
        #: When there is something to write.
        self.next_at = inf

    def take(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        """Take lines of a run."""
        lines = run.log
        if lines is None:
            lines = run.log = Lines(time.monotonic() + _FIRST)
        assert isinstance(lines, Lines)
        lines.add(frame)
        if run not in self._waiting:
            self._wait(run, lines)

    def end(self, run: Run, *, finished: bool) -> None:
        """Record that a run with lines is over. `finished`: it did what it was to do."""
        lines = run.log
        assert isinstance(lines, Lines)
        self._waiting.pop(run, None)
        fields = run.claimed.fields
        lines.due = 0.0
        if finished and b"keep_logs" not in fields:
            if not lines.written and fields.get(b"attempts", b"0") == b"0":
                return
            lines.raw.clear()
            lines.masked.clear()
        self._wait(run, lines)

    def forget(self, run: Run) -> None:
        """Drop the lines of a run whose job another worker has."""
        self._waiting.pop(run, None)

    def _wait(self, run: Run, lines: Lines) -> None:
        if len(self._waiting) >= _MOST:
            del self._waiting[next(iter(self._waiting))]
            self._complain(f"more than {_MOST} wait")
        self._waiting[run] = lines
        self.next_at = min(self.next_at, lines.due)

    def flush(self, now: float) -> None:
        """Write some of what is due. RedisAway if Redis does not answer: then it is kept."""
        if now < self.next_at:
            return
        until, batch = now + _SLICE, dict[Run, Lines]()
        for run, lines in self._waiting.items():
            if lines.due <= now:
                if not lines.mask(until):
                    break
                batch[run] = lines
                if len(batch) == _BATCH or time.monotonic() >= until:
                    break
        if batch:
            self._link.attempt(lambda: self._write(batch))
            for run, lines in batch.items():
                if self._waiting.get(run) is lines and not lines.raw:
                    del self._waiting[run]
                lines.due = now + _EVERY
        self.next_at = min((lines.due for lines in self._waiting.values()), default=inf)

    def flush_all(self) -> None:
        """The end: write what there is. RedisAway if Redis does not answer."""
        for lines in self._waiting.values():
            lines.due = 0.0
        while self._waiting:
            self.next_at = 0.0
            self.flush(time.monotonic())

    def _write(self, batch: Mapping[Run, Lines]) -> None:
        try:
            self._broker.write_logs([_log_of(run, lines) for run, lines in batch.items()])
        except ResponseError as error:  # a full server refuses them but takes outcomes, so this is not an outage
            self._complain(one_line(error))
        for lines in batch.values():
            lines.written = True

    def _complain(self, why: str) -> None:
        if (now := time.monotonic()) >= self._complain_at:
            self._complain_at = now + _REPEAT
            self._log.warning("lines of jobs' logs were dropped: %s", why)


def _log_of(run: Run, lines: Lines) -> RunLog:
    claimed = run.claimed
    attempt = _count(claimed.fields.get(b"attempts")) + 1
    return RunLog(claimed.id, claimed.execution_id, attempt, lines.left_out, "\n".join(lines.masked))


def _count(raw: bytes | None) -> int:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= _DIGITS else 0
