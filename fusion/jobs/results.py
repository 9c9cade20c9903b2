"""The results of a job's runs, as in RQ: how each ended, and what it returned or raised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar

from fusion.jobs.attempts import Attempt


class ResultType(str, Enum):
    """The end of a run. RQ has the first four. The others are runs that were canceled, lost with their worker or process, or given back by
    their worker; they do not count as an attempt."""

    SUCCESSFUL = "successful"
    FAILED = "failed"
    STOPPED = "stopped"
    RETRIED = "retried"
    CANCELED = "canceled"
    LOST = "lost"
    RELEASED = "released"

    def __str__(self) -> str:
        return self.value


_TYPES = {"retry": ResultType.RETRIED, "finished": ResultType.SUCCESSFUL} | {kind.value: kind for kind in ResultType}


@dataclass(frozen=True, slots=True)
class Result:
    """The end of one run. `exc_string`: the traceback of the last failed run, or the last line of it for earlier ones; None if it did not fail.
    `created_at`: when it ended."""

    #: RQ's name for it.
    Type: ClassVar[type[ResultType]] = ResultType

    job_id: str
    type: ResultType
    created_at: datetime | None
    worker_name: str = ""
    exc_string: str | None = None
    execution_started_at: datetime | None = None
    _load: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def return_value(self) -> Any:
        """The value that the task returned; None if the run did not finish, or its result was dropped. Raises the errors of `Job.result`."""
        return self._load() if self._load is not None else None


def results_of(
    job_id: str, history: list[Attempt], exc_info: str | None, finished: Result | None, load: Callable[[], Any]
) -> list[Result]:
    """Return the results, newest first: the run that `finished`, and those before it. `load`: returns what the last run that finished
    returned, of a job that is to run again."""
    found = [_of_attempt(job_id, attempt) for attempt in history]
    if finished is None and found and found[-1].type is ResultType.SUCCESSFUL:
        found[-1] = replace(found[-1], _load=load)
    for at in range(len(found) - 1, -1, -1):
        if finished is None and exc_info and found[at].type in (ResultType.FAILED, ResultType.RETRIED):
            last = found[at]
            found[at] = Result(job_id, last.type, last.created_at, last.worker_name, exc_info, last.execution_started_at)
            break
    return [*([finished] if finished else []), *reversed(found)]


def _of_attempt(job_id: str, attempt: Attempt) -> Result:
    kind = _TYPES.get(attempt.outcome, ResultType.FAILED)
    error = attempt.error if kind in (ResultType.FAILED, ResultType.RETRIED, ResultType.LOST) else ""
    return Result(job_id, kind, attempt.end, attempt.worker, error or None, attempt.start)
