"""A worker's log of its jobs, a line each, in RQ's manner."""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager, nullcontext

from fusion.execution.completion import Decision
from fusion.runtime.terminal_log import LineBatch
from fusion.store.layout.records import Claimed

#: Kinds of decisions on a run that finished.
_DONE = ("finished", "repeat")
#: Seconds between two lines about the same broken queue.
_REPEAT = 60.0


class JobLog:
    """Logs jobs, with the job in the record's attributes too (`job_id`, `queue`, ...).

    - `job_lines=False` leaves out lines about success, and descriptions;
    - of a task's error it logs the class and place. With `messages` it logs the message too, which may contain the task's arguments;
    - `batch` is open while lines about success may be written together.
    """

    def __init__(self, log: logging.Logger, job_lines: bool, *, messages: bool = False) -> None:
        self._log = log
        self._messages = messages
        self._describe = job_lines
        self._job_lines = job_lines and log.isEnabledFor(logging.INFO)
        self._bad: dict[str, float] = {}
        self._lines = LineBatch(log)
        self.batch: AbstractContextManager[object] = self._lines if self._job_lines else nullcontext()
        self.is_suspended = False

    def started(self, claimed: Claimed) -> None:
        """Log that a job begins."""
        if self._job_lines:
            if self._lines.add(f"{one_line(claimed.queue, 200)}: {_described(claimed)} ({claimed.id})"):
                return
            about = self._about(claimed)
            self._log.info("%s: %s (%s)", about["queue"], about.get("description", "?"), claimed.id, extra=about)

    def committed(self, claimed: Claimed, decision: Decision, answer: str, *, again: bool = False) -> None:
        """Log the outcome of a job, and Redis's `answer` to it. `again`: a refused outcome will be sent again."""
        if answer == "ok" and (raised := decision.fields.get("callback_error")):
            self._callback_raised(claimed, raised)
        if answer == "ok" and (decision.kind == "later" or (decision.kind in _DONE and not self._job_lines)):
            return
        if (
            answer == "ok"
            and decision.kind in _DONE
            and self._lines.add(f"{one_line(claimed.queue, 200)}: Job OK ({claimed.id})")
        ):
            return
        about = self._about(claimed)
        reason = one_line(decision.reason if self._messages or not decision.shown else decision.shown)
        if answer == "stale" or answer == "gone":
            why = "another execution has it" if answer == "stale" else "it is not in Redis any more"
            text = "%s: outcome %s of job %s not accepted: %s"
            self._log.warning(text, about["queue"], decision.kind, claimed.id, why, extra=about)
        elif answer != "ok":
            then = "it is offered again" if again else "the job runs again when its lease is over"
            self._log.error(
                "%s: outcome of job %s was refused, %s: %s", about["queue"], claimed.id, then, one_line(answer), extra=about
            )
        elif decision.kind in _DONE:
            self._log.info("%s: Job OK (%s)", about["queue"], claimed.id, extra=about)
        elif decision.kind == "retry":
            text = "%s: job %s failed, retry in %.0f s: %s"
            self._log.warning(text, about["queue"], claimed.id, decision.delay, reason, extra=about)
        elif decision.kind == "failed":
            self._log.error("%s: job %s failed: %s", about["queue"], claimed.id, reason, extra=about)
        elif decision.kind == "release" and claimed.ahead:
            self._log.debug("%s: job %s was not begun and goes back: %s", about["queue"], claimed.id, reason, extra=about)
        else:
            self._log.warning("%s: job %s %s: %s", about["queue"], claimed.id, decision.kind, reason, extra=about)

    def _callback_raised(self, claimed: Claimed, raised: bytes | str | int) -> None:
        """Log the error of a callback. The job's outcome stands; its `callback_error` keeps the full text."""
        about = self._about(claimed)
        told = raised.decode("utf-8", "replace") if isinstance(raised, bytes) else str(raised)
        shown = one_line(told if self._messages else ": ".join(told.split(": ", 2)[:2]))
        self._log.warning("%s: a callback of job %s raised: %s", about["queue"], claimed.id, shown, extra=about)

    def lost(self, claimed: Claimed) -> None:
        """Log that another worker may have the job."""
        text = "job %s is no longer this worker's (its lease ran out); its process is killed"
        self._log.warning(text, claimed.id, extra=self._about(claimed))

    def bad_queue(self, queue: str, error: str) -> None:
        """Log once a minute that a queue's key is not what it should be."""
        now = time.monotonic()
        if now - self._bad.get(queue, -_REPEAT) >= _REPEAT:
            self._bad[queue] = now
            name = one_line(queue, 200)  # a queue of a wildcard may have any name that a program wrote into the list
            self._log.error("queue %s can't be served, the others go on: %s", name, one_line(error), extra={"queue": name})

    def suspended(self, now_suspended: bool) -> None:
        """Log when the fleet is suspended, and when it goes on."""
        if now_suspended != self.is_suspended:
            self._log.info("suspended: no job is taken until `resume`" if now_suspended else "resumed")
            self.is_suspended = now_suspended

    def _about(self, claimed: Claimed) -> dict[str, str | int]:
        """Return the job as attributes of a log record. `attempt`: the number of the run, from 1."""
        done = claimed.fields.get(b"attempts", b"")
        about: dict[str, str | int] = {
            "job_id": claimed.id,
            "queue": one_line(claimed.queue, 200),
            "attempt": (int(done) if done.isdigit() and len(done) < 10 else 0) + 1,
        }
        if self._describe:
            about["description"] = _described(claimed)
        return about


def _described(claimed: Claimed) -> str:
    return one_line(claimed.fields.get(b"description", b"?").decode("utf-8", "replace"), 200)


def one_line(text: str, limit: int = 2000) -> str:
    """Return foreign text without line ends and other control characters."""
    text = text[:limit]
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
