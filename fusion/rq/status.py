"""RQ's names of a job's states."""

from __future__ import annotations

from enum import Enum


class JobStatus(str, Enum):
    """The state of a job. Fusion's `blocked` is RQ's `rate_limited`; no job of Fusion's is ever `ready_to_enqueue`."""

    CREATED = "created"
    QUEUED = "queued"
    FINISHED = "finished"
    FAILED = "failed"
    STARTED = "started"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    STOPPED = "stopped"
    CANCELED = "canceled"
    RATE_LIMITED = "rate_limited"
    READY_TO_ENQUEUE = "ready_to_enqueue"

    @classmethod
    def _missing_(cls, value: object) -> JobStatus | None:
        return cls.RATE_LIMITED if value == "blocked" else None

    def __str__(self) -> str:
        return self.value
