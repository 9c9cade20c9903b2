"""Brings the reports of running jobs, progress and cursors, from their processes to Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from fusion.executors.base import Run
from fusion.kernel import defaults
from fusion.kernel.progress import parse_progress
from fusion.runtime.membership import Membership
from fusion.runtime.redis_link import RedisLink
from fusion.store.layout.records import Report
from fusion.store.write.broker import Broker

#: Seconds for which reports are collected to share one call; and reports of one call.
_TOGETHER, _BATCH = 0.1, 50
#: Seconds until a report that a broken key refused is sent again.
_AGAIN = 1.0


@dataclass(slots=True)
class _Pending:
    """The newest report of a run that is not written. `waits`: numbers of checkpoints that wait for the write."""

    due: float
    fields: dict[bytes, bytes] = field(default_factory=dict)
    waits: list[bytes] = field(default_factory=list)


class Reports:
    """Keeps the newest report of each run, and writes those of all runs together. One run's is written at most once a second, unless the
    run waits.

    No report is lost: when a run ends, its unwritten report goes with the outcome, see `left`. Redis may be away meanwhile.
    """

    def __init__(
        self, broker: Broker, link: RedisLink, membership: Membership, tell: Callable[[Run, Mapping[bytes, bytes]], None]
    ) -> None:
        """`tell`: sends a frame to the process of a run."""
        self._broker, self._link, self._membership, self._tell = broker, link, membership, tell
        #: The runs whose newest report is not written.
        self.pending: dict[Run, _Pending] = {}
        #: When there is something to write.
        self.next_at = inf

    def take(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        """Take a report from a run's process. Ignore a report that is too long: the process runs foreign code."""
        now = time.monotonic()
        pending = self.pending.get(run)
        if pending is None:
            due = max(now + _TOGETHER, run.reported_at + defaults.REPORT_INTERVAL)
            pending = self.pending[run] = _Pending(due)
        pending.fields |= report_of(frame)
        if b"wait" in frame:
            pending.waits.append(frame[b"wait"][:20])
            pending.due = now
        self.next_at = min(self.next_at, pending.due)

    def left(self, run: Run) -> dict[bytes, bytes]:
        """Return the unwritten report of a run that is over, for its outcome."""
        pending = self.pending.pop(run, None)
        return pending.fields if pending else {}

    def flush(self, now: float) -> None:
        """Write the reports that are due. RedisAway if Redis does not answer: then they are kept."""
        due = [run for run, pending in self.pending.items() if pending.due <= now][:_BATCH]
        if due:
            self._write(due)
        self.next_at = min((pending.due for pending in self.pending.values()), default=inf)

    def flush_all(self) -> None:
        """The end: write what there is. RedisAway if Redis does not answer."""
        while runs := [*self.pending][:_BATCH]:
            self._write(runs)
            for run in runs:
                self.pending.pop(run, None)

    def _write(self, runs: list[Run]) -> None:
        now = time.monotonic()
        reports = [self._report_of(run, now) for run in runs]
        answers = self._link.attempt(lambda: self._broker.report(self._membership.name, reports))
        for run, report, answer in zip(runs, reports, answers, strict=True):
            if answer.startswith("error"):
                self.pending[run].due = now + _AGAIN
                continue
            pending = self.pending.pop(run)
            run.reported_at = now
            if report.said:
                run.progress_told_at = now
            for number in pending.waits if answer == "ok" else ():
                self._tell(run, {b"stored": number})

    def _report_of(self, run: Run, now: float) -> Report:
        fields, said = self.pending[run].fields, ""
        progress = fields.get(b"progress", b"")
        if progress and now >= run.progress_told_at + defaults.PROGRESS_EVENT_INTERVAL:
            found = parse_progress(progress)
            said = found.figures if found else ""
        return Report(run.claimed.id, run.claimed.execution_id, progress, fields.get(b"cursor", b""), said)


def report_of(frame: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the progress and cursor in a frame, as far as they may be stored."""
    found = {}
    if parse_progress(progress := frame.get(b"progress", b"")) is not None:
        found[b"progress"] = progress
    if 0 < len(cursor := frame.get(b"cursor", b"")) <= defaults.MAX_CURSOR:
        found[b"cursor"] = cursor
    return found
