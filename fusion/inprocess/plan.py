"""The port between a manager and whoever knows the work."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Protocol

from fusion.inprocess.job import ReadyJob


class ExecutionPlan(Protocol):
    """Keeps the work: in a table, a file, a list. The manager calls it from many threads at once.

    Any call may raise. A fetch that failed is made again; a job whose outcome the plan did not take stays active until it does.
    """

    def fetch_ready(self) -> Iterable[ReadyJob]:
        """The jobs that are Pending and may run now, the first one first. Jobs that the manager knows already may be among them."""

    def is_currently_running(self, job_id: Hashable) -> bool:
        """True if somebody runs this job, here or elsewhere: then it is not put into the queue."""

    def mark_running(self, job_id: Hashable) -> bool | None:
        """A worker is about to run the job. False: somebody else was faster, leave it to them.

        Where several managers share a plan, exactly one of them may get another answer than False, by one atomic step.
        """

    def mark_complete(self, job_id: Hashable, result: Any) -> None:
        """The job is Complete. May be called again with the same result, if the call before raised."""

    def mark_pending(self, job_id: Hashable, error: str) -> None:
        """The job failed, or its time was over: it is Pending again. `error` is the traceback, or the reason.

        May be called again if the call before raised, and after a `mark_running` that raised.
        """
