"""The interface between a manager and the source of its jobs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Protocol

from fusion.inprocess.job import ReadyJob


class ExecutionPlan(Protocol):
    """Stores the jobs, for example in a table, a file or a list. The manager calls it from many threads at once.

    Any call may raise. A failed fetch is repeated. If the plan does not accept a job's outcome, the job stays active until it does.
    """

    def fetch_ready(self) -> Iterable[ReadyJob]:
        """Return the jobs that are Pending and may run now, in order. Jobs that the manager has already may be among them."""

    def is_currently_running(self, job_id: Hashable) -> bool:
        """Return True if this job runs already, here or elsewhere: then it is not queued."""

    def mark_running(self, job_id: Hashable) -> bool | None:
        """Claim the job, as a worker is about to run it. False: another manager has it, so it must not run here.

        If several managers share a plan, only one of them may get another answer than False; this must be one atomic step.
        """

    def mark_complete(self, job_id: Hashable, result: Any) -> None:
        """Store that the job is Complete. If a call raised, it may be repeated with the same result."""

    def mark_pending(self, job_id: Hashable, error: str) -> None:
        """Store that the job is Pending again, as it failed or its time was over. `error`: the traceback, or the reason.

        If a call raised, it may be repeated. It may also follow a `mark_running` that raised.
        """
