"""RQ's `Result`: how a run of a job ended."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from fusion.jobs.results import Result as CoreResult
from fusion.jobs.results import ResultType
from fusion.rq.hints import missing

if TYPE_CHECKING:
    from fusion.rq.job import Job


class Type(Enum):
    """How a run ended."""

    SUCCESSFUL = 1
    FAILED = 2
    STOPPED = 3
    RETRIED = 4
    MAX_RETRIES_EXCEEDED = 5


_TYPES = {
    ResultType.SUCCESSFUL: Type.SUCCESSFUL,
    ResultType.FAILED: Type.FAILED,
    ResultType.STOPPED: Type.FAILED,  # as RQ stores it
    ResultType.CANCELED: Type.STOPPED,
    ResultType.RETRIED: Type.RETRIED,
    ResultType.LOST: Type.FAILED,
}


#: How the error of a task begins that returned a `Retry` once more than it allows.
_USED_UP = "fusion.retry.RetryLater: the task returned Retry("


class Result:
    """The end of one run. The last ten that did not finish are kept, and the one that did."""

    Type = Type

    def __init__(self, job: Job, found: CoreResult) -> None:
        self._found = found
        self.job_id, self.connection, self.serializer = job.id, job.connection, job.serializer
        self.type = _TYPES[found.type]
        if self.type is Type.FAILED and (found.exc_string or "").startswith(_USED_UP):
            self.type = Type.MAX_RETRIES_EXCEEDED
        self.created_at: datetime | None = found.created_at
        self.worker_name, self.exc_string = found.worker_name, found.exc_string
        self.execution_started_at, self.execution_ended_at = found.execution_started_at, found.created_at
        self.id = f"{found.created_at.timestamp():.6f}" if found.created_at else ""

    @property
    def return_value(self) -> Any:
        """The value that the task returned; None if the run did not finish."""
        return self._found.return_value

    def __repr__(self) -> str:
        return f"Result(id={self.id}, type={self.type.name})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and (other.job_id, other.id) == (self.job_id, self.id)

    def __hash__(self) -> int:
        return hash((self.job_id, self.id))

    @classmethod
    def all(cls, job: Job, serializer: Any = None) -> list[Result]:
        """Return how the runs of a job ended, the newest first. Runs that were given back are left out."""
        return job.results()

    @classmethod
    def count(cls, job: Job) -> int:
        """Return how many there are."""
        return len(job.results())

    @classmethod
    def fetch_latest(cls, job: Job, serializer: Any = None, timeout: int = 0) -> Result | None:
        """Return the newest; None if there is none. With a `timeout` in seconds, wait for one."""
        return job.latest_result(timeout)


def results_of(job: Job, found: list[CoreResult]) -> list[Result]:
    """Return those of RQ's types."""
    return [Result(job, one) for one in found if one.type in _TYPES]


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
