"""One event of a job, as the sinks get it. docs/events.md is the table of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

#: Events that the classic event log has as statuses. The others go to sinks with `all_events` alone.
STATUSES = frozenset({"queued", "processing", "completed", "failed", "retry"})


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of a job. Its `id` is `<epoch>-<n>` and never changes, so that a sink which gets it twice can tell.

    `payload` and `result` are texts, masked as the settings say, empty where there is none. `reason` holds no text of the task's own:
    an error is its class and place.
    """

    id: str
    event: str
    job_id: str
    queue: str
    at: datetime
    log_tag: str = ""
    func_name: str = ""
    host: str = ""
    worker: str = ""
    priority: int | None = None
    attempts: int | None = None
    #: Seconds a run took; seconds until a retry.
    elapsed: float | None = None
    delay: float | None = None
    reason: str = ""
    message: str = ""
    payload: str = ""
    result: str = ""
    #: `log` for a line that a program wrote by `Log`; empty for what Fusion itself reports.
    source: str = ""
    #: Class of what the job's `on_success` or `on_failure` raised, if it did.
    callback_error: str = ""

    @property
    def task(self) -> str:
        """`SMS` of the log tag `SMS_OTP`; without a tag the function's module."""
        return self.log_tag.partition("_")[0] or self.func_name.rpartition(".")[0].rpartition(".")[2].upper()

    @property
    def task_type(self) -> str:
        """`OTP` of the log tag `SMS_OTP`; without one the function's name."""
        return self.log_tag.partition("_")[2] or self.func_name.rpartition(".")[2]
