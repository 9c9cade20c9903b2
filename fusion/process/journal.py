"""What a worker says about its jobs, a line each, in RQ's manner."""

from __future__ import annotations

import logging
import time

from fusion.execution.completion import Decision
from fusion.store.records import Claimed

#: Seconds between two lines about the same broken queue.
_REPEAT = 60.0


class Journal:
    """Lines about jobs. `job_lines=False` leaves out what goes well."""

    def __init__(self, log: logging.Logger, job_lines: bool) -> None:
        self._log = log
        self._job_lines = job_lines and log.isEnabledFor(logging.INFO)
        self._bad: dict[str, float] = {}
        self._suspended = False

    def started(self, claimed: Claimed) -> None:
        if self._job_lines:
            self._log.info("%s: %s (%s)", claimed.queue, _plain(claimed.fields.get(b"description", b"?")), claimed.id)

    def committed(self, claimed: Claimed, decision: Decision, answer: str) -> None:
        if answer == "stale" or answer == "gone":
            why = "another execution has it" if answer == "stale" else "it is not in Redis any more"
            self._log.warning("%s: outcome %s of job %s not accepted: %s", claimed.queue, decision.kind, claimed.id, why)
        elif answer != "ok":
            self._log.error("%s: outcome of job %s was refused, it will be recovered: %s", claimed.queue, claimed.id, answer)
        elif decision.kind == "finished":
            if self._job_lines:
                self._log.info("%s: Job OK (%s)", claimed.queue, claimed.id)
        elif decision.kind == "retry":
            self._log.warning(
                "%s: job %s failed, retry in %.0f s: %s", claimed.queue, claimed.id, decision.delay, decision.reason
            )
        elif decision.kind == "failed":
            self._log.error("%s: job %s failed: %s", claimed.queue, claimed.id, decision.reason)
        else:
            self._log.warning("%s: job %s %s: %s", claimed.queue, claimed.id, decision.kind, decision.reason)

    def bad_queue(self, queue: str, error: str) -> None:
        now = time.monotonic()
        if now - self._bad.get(queue, -_REPEAT) >= _REPEAT:
            self._bad[queue] = now
            self._log.error("queue %s can't be served, the others go on: %s", queue, error)

    def suspended(self, now_suspended: bool) -> None:
        if now_suspended != self._suspended:
            self._log.info("suspended: no job is taken until `resume`" if now_suspended else "resumed")
            self._suspended = now_suspended


def _plain(text: bytes) -> str:
    """One line, no control characters: descriptions come from outside."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text.decode("utf-8", "replace")[:200])
