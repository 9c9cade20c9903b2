"""Brings log lines and meta of running tasks from their processes to Redis."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from redis.exceptions import ResponseError

from fusion.events.event import STATUSES
from fusion.executors.base import Run
from fusion.kernel.redaction import cut, printable
from fusion.runtime.membership import Membership
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.store.client.connections import one_line
from fusion.store.layout.records import LogLine
from fusion.store.write.broker import Broker

#: Seconds between two calls, and the most lines of one call.
_EVERY, _BATCH = 0.1, 100
#: Lines kept while they wait: of one job, of all.
_OF_ONE, _OF_ALL = 200, 1000
_MAX_LINE = 1024
#: Seconds between two warnings in this worker's own log.
_REPEAT = 60.0


@dataclass(frozen=True, slots=True)
class _Line:
    run: Run
    event: str
    message: str
    dropped: int
    at: float


class TaskLogs:
    """Collects lines of all jobs and writes them together, so that no line costs a round trip.

    Lines may be dropped: while Redis is away, or if a job logs too much. The next line of the job shows how many. A call without a reply is
    repeated under its nonce, so that no line is written twice.
    """

    def __init__(self, broker: Broker, link: RedisLink, membership: Membership, log: logging.Logger) -> None:
        self._broker, self._link, self._membership, self._log = broker, link, membership, log
        self._waiting: list[_Line] = []
        self._sent: tuple[str, list[_Line]] | None = None
        self._complain_at = 0.0
        #: When there is something to write.
        self.next_at = float("inf")

    def take(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        """Take a log line or the job's meta."""
        if frame.get(b"kind") == b"meta":
            self._save_meta(run, frame.get(b"meta", b"{}"))
        else:
            event = frame.get(b"event", b"").decode("utf-8", "replace")
            self._add(run, event if event in STATUSES else "log", frame.get(b"message", b""), _count(frame.get(b"dropped")))

    def note_dropped(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        """Write with an outcome that lines were dropped, here or in the job's process."""
        run.unsaid += _count(frame.get(b"unsaid"))
        if run.unsaid:
            self._add(run, "log", b"lines of this job were dropped", 0)

    def _save_meta(self, run: Run, meta: bytes) -> None:
        claimed = run.claimed
        if self._link.open(time.monotonic()):
            try:
                self._link.attempt(lambda: self._broker.save_meta(claimed.id, meta, claimed.execution_id))
            except RedisAway:
                pass  # the outcome carries the last meta again

    def _add(self, run: Run, event: str, message: bytes, dropped: int) -> None:
        if run.said >= _OF_ONE or len(self._waiting) >= _OF_ALL:
            run.unsaid += dropped + 1
            return
        # The process, which runs foreign code, has masked secrets; here only the format is enforced.
        text = cut(printable(message[: 4 * _MAX_LINE].decode("utf-8", "replace")), _MAX_LINE)
        now = time.monotonic()
        self._waiting.append(_Line(run, event, text, dropped + run.unsaid, now))
        run.said, run.unsaid = run.said + 1, 0
        self.next_at = min(self.next_at, now + _EVERY)

    def flush(self, now: float) -> None:
        """Write some of the lines if that is due. RedisAway if Redis does not answer: then they are kept."""
        if now >= self.next_at:
            self._write_some(now)

    def flush_all(self) -> None:
        """The end: write what there is. RedisAway if Redis does not answer."""
        while self._sent is not None or self._waiting:
            self._write_some(time.monotonic())

    def _write_some(self, now: float) -> None:
        if self._sent is None:
            batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
            for line in batch:
                line.run.said -= 1
            self._sent = (secrets.token_hex(8), batch)
        nonce, batch = self._sent
        self._link.attempt(lambda: self._write(nonce, batch))
        self._sent = None
        self.next_at = now + _EVERY if self._waiting else float("inf")

    def _write(self, nonce: str, batch: list[_Line]) -> None:
        now = time.monotonic()
        lines = [self._line_of(line, now) for line in batch]
        try:
            self._broker.log_event(lines, nonce)
        except ResponseError as error:  # a full server refuses lines but takes outcomes, so this is not an outage
            for line in batch:
                line.run.unsaid += 1 + line.dropped
            if now >= self._complain_at:
                self._complain_at = now + _REPEAT
                self._log.warning("lines of tasks were dropped: %s", one_line(error))

    def _line_of(self, line: _Line, now: float) -> LogLine:
        claimed = line.run.claimed
        log_tag = claimed.fields.get(b"log_tag", b"").decode("utf-8", "replace")
        return LogLine(
            line.event,
            line.message,
            claimed.id,
            claimed.queue,
            log_tag,
            self._membership.name,
            max(0.0, now - line.at),
            line.dropped,
        )


def _count(raw: bytes | None) -> int:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) < 10 else 0
