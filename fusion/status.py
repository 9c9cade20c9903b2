"""The states of a job, as programs name them. A job is in exactly one, and each has its set in Redis; what they mean is in `fusion.kernel.states`."""

from __future__ import annotations

from enum import Enum

from fusion.exceptions import InvalidJobOperation, NoSuchJobError
from fusion.kernel.states import ENDED


class JobStatus(str, Enum):
    """The state of a job. A state that only a newer version of Fusion knows keeps its own name, and equals none of those named here."""

    QUEUED = "queued"
    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    CANCELED = "canceled"
    STOPPED = "stopped"
    BLOCKED = "blocked"

    @classmethod
    def _missing_(cls, value: object) -> JobStatus | None:
        if not isinstance(value, str) or not value:
            return None
        found = str.__new__(cls, value)
        found._name_, found._value_ = value.upper(), value
        return found

    def __str__(self) -> str:
        return self.value

    @property
    def is_terminal(self) -> bool:
        """The job has ended and does not run again by itself."""
        return self in TERMINAL


#: The status that scripts answer for a record that Fusion did not write.
FOREIGN = "foreign"
FOREIGN_JOB = "another program's job, RQ's perhaps; Fusion leaves it alone"


def refuse_foreign(job_id: str, answer: str) -> None:
    """Raise InvalidJobOperation if that is what a script answered."""
    if answer == FOREIGN:
        raise InvalidJobOperation(f"job {job_id} is {FOREIGN_JOB}")


def check_called_off(job_id: str, answer: str, done: str) -> None:
    """Raise the error for a job that could not be called off. `done`: the status that the call was to give it; that answer and `pending` are
    success."""
    if answer == "missing":
        raise NoSuchJobError(f"no job {job_id!r}")
    refuse_foreign(job_id, answer)
    if answer not in (done, "pending"):
        raise InvalidJobOperation(f"job {job_id} can't be {done}: {why_not(answer)}")


def why_not(status: str) -> str:
    """Return why a job of this status can't be changed as a waiting one can."""
    if status == FOREIGN:
        return f"it is {FOREIGN_JOB}"
    if status == JobStatus.STARTED:
        return "it is running"
    return (
        f"it has ended ({status})"
        if JobStatus(status) in TERMINAL
        else f"it is {status}, which only a newer version of Fusion knows"
    )


TERMINAL = frozenset(map(JobStatus, ENDED))
