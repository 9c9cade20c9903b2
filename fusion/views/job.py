"""A job in the sizes of lists: a row of a search, one that runs, one that failed, one that waits for a time, one of a graph; and the results of
changes. `job_sheet` has all of one job."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from fusion.kernel.redaction import masked_text
from fusion.views.base import ABSENT, View, age, details, part, public, view

if TYPE_CHECKING:
    from typing import Self

    from fusion.jobs.moment import FailedJob, RunningJob
    from fusion.jobs.scheduled import WaitingJob
    from fusion.jobs.tree import JobTree, TreeNode
    from fusion.store.read.found_jobs import FoundJob

OnFailure = Literal["fail", "ignore", "wait"]


@part
class ErrorView(View):
    """The last error of a job, without its message."""

    kind: str = public("Its class.", name="class")
    at: str | None = public("Where it was raised: module, function and line.")


@part
class FoundJobView(View):
    """A job that a search found."""

    id: str = public("Its id.", column="ID")
    status: str = public("Its state.", column="STATE")
    queue: str = public("Its queue.", column="QUEUE")
    function: str | None = public("The function that it calls.", column="FUNCTION")
    since: datetime | None = public("When it entered its state.", column="AGE")
    priority: int = public("Its priority.")
    log_tag: str | None = public("Its log tag.")
    attempts: int = public("Runs that failed.")
    worker: str | None = public("The worker that runs it, or ran it last.")
    error: ErrorView | None = public("Its last error.", column="ABOUT")
    quarantined: bool = public("Whether it was set aside.")
    scheduled_at: datetime | None = public("When it is due.")
    waits_for: str | None = public("What it waits for, if it is blocked or deferred.")
    progress_percent: float | None = public("How far it says it is.", unit="percent")
    description: str | None = details("Its description, masked; null if that is the function.", how=masked_text)

    @classmethod
    def of(cls, job: FoundJob) -> Self:
        """Make the view of a job that was found."""
        return cls(
            id=job.id,
            status=job.state,
            queue=job.queue,
            function=job.function or None,
            since=job.since,
            priority=job.priority,
            log_tag=job.tag or None,
            attempts=job.attempts,
            worker=job.worker or None,
            error=ErrorView(kind=job.error, at=job.frame or None) if job.error else None,
            quarantined=job.quarantined,
            scheduled_at=job.due,
            waits_for=job.waits_for or None,
            progress_percent=job.done,
            description=job.about or None,
        )


@view
class JobsView(View):
    """A page of the jobs that a query matches."""

    query: str = public("The query.")
    jobs: list[FoundJobView] = public("The jobs.")
    after: str | None = public("For the next page; null at the end.")
    looked: int = public("Jobs that were read.")
    total: int = public("Jobs in the sets that were searched.")
    complete: bool = public("Whether all of them were read.")
    note: str | None = public("What was left out, in words.")
    broken: list[str] = public("What could not be read.")


# -- what runs, and what failed last


@part
class RunningJobView(View):
    """A job that runs."""

    id: str = public("Its id.", column="JOB")
    queue: str = public("Its queue.", column="QUEUE")
    function: str = public("The function that it calls.", column="FUNCTION")
    worker: str = public("The worker that runs it.", column="ON WORKER", short="WORKER")
    started_at: datetime | None = public("When it started.")
    seconds: float | None = public("How long it has run.", unit="seconds", column="RUNS")
    timeout: float | None = public("How long it may run.", unit="seconds")
    progress_percent: float | None = public("How far it says it is.", unit="percent", column="DONE")
    attempt: int = public("Runs that failed before.", column="TRY")
    description: str | None = details("Its description, masked; null if that is the function.", how=masked_text)

    @classmethod
    def of(cls, job: RunningJob, at: datetime) -> Self:
        """Make the view of a job that runs at this time."""
        return cls(
            id=job.id,
            queue=job.queue,
            function=job.function,
            worker=job.worker,
            started_at=job.started_at,
            seconds=age(at, job.started_at),
            timeout=job.timeout,
            progress_percent=job.done,
            attempt=job.attempt,
            description=job.about or None,
        )


@part
class LastFailedView(View):
    """A job that failed not long ago."""

    at: datetime | None = public("When it failed.", column="FAILED")
    queue: str = public("Its queue.", column="QUEUE")
    error: str = public("The class of its error.", column="ERROR")
    error_frame: str | None = public("Where it was raised: module, function and line.", column="WHERE")
    function: str = public("The function that it called.", column="FUNCTION")
    id: str = public("Its id.", column="JOB")
    quarantined: bool = public("Whether it was set aside.")
    description: str | None = details("Its description, masked; null if that is the function.", how=masked_text)

    @classmethod
    def of(cls, job: FailedJob) -> Self:
        """Make the view of a failed job."""
        return cls(
            at=job.at,
            queue=job.queue,
            error=job.error,
            error_frame=job.frame or None,
            function=job.function,
            id=job.id,
            quarantined=job.quarantined,
            description=job.about or None,
        )


@view
class RunningView(View):
    """Running jobs, and those that failed last."""

    at: datetime = public("When this was read.")
    total: int = public("How many run; at most 1,000 are counted.")
    running: list[RunningJobView] = public("The longest-running first.")
    last_failed: list[LastFailedView] = public("The newest first.")


# -- what waits for a time


@part
class ScheduledJobView(View):
    """A job that waits for a time."""

    id: str = public("Its id.", column="ID")
    due_at: datetime = public("When it is due.", column="DUE")
    due_in: float = public(
        "How long that is from now; below 0: any worker may move it to its queue now.", unit="seconds", column=""
    )
    queue: str | None = public("Its queue.", column="QUEUE")
    function: str | None = public("The function that it calls.")
    why: str = public("Why it waits: enqueued for then, a retry, held back.", column="WHY")
    reason: str | None = details("The reason, masked: it may quote an error.", how=masked_text)
    description: str | None = details("Its description, masked.", how=masked_text, column="DESCRIPTION")

    @classmethod
    def of(cls, job: WaitingJob, at: datetime) -> Self:
        """Make the view of a job that waits."""
        return cls(
            id=job.id,
            due_at=job.due,
            due_in=(job.due - at).total_seconds(),
            queue=job.queue or None,
            function=job.function or None,
            why=job.kind,
            reason=job.reason or None,
            description=job.description or None,
        )


@view
class ScheduledView(View):
    """A page of the jobs that wait for a time."""

    at: datetime = public("When this was read.")
    total: int = public("How many there are in all.")
    offset: int = public("How many were left out before these.")
    jobs: list[ScheduledJobView] = public("The soonest first.")


# -- a graph


@part
class ParentView(View):
    """A job of a graph that another one waits for, or waited for."""

    id: str = public("The job.")
    on_failure: OnFailure = public("What happens to the other job if this one does not finish.")


@part
class NodeView(View):
    """A job of a graph."""

    id: str = public("Its id.")
    status: str = public("Its state; `gone` if there is no record of it.")
    queue: str | None = public("Its queue.")
    function: str | None = public("The function that it calls.")
    level: int = public("0 is the job itself, -1 a job that it waits for, 1 a job that waits for it, and so on.")
    parents: list[ParentView] = public("Jobs of the graph that it waits for, or waited for.")
    other_parents: int = public("How many more jobs it waits for, or waited for.")
    enqueued_at: datetime | None = public("When it entered its queue.")
    started_at: datetime | None = public("When its last run started.")
    ended_at: datetime | None = public("When it ended.")

    @classmethod
    def of(cls, node: TreeNode) -> Self:
        """Make the view of a node."""
        return cls(
            id=node.id,
            status=node.status,
            queue=node.queue or None,
            function=node.function or None,
            level=node.level,
            parents=[ParentView(id=one, on_failure=cast(OnFailure, policy)) for one, policy in node.parents.items()],
            other_parents=node.others,
            enqueued_at=node.enqueued_at,
            started_at=node.started_at,
            ended_at=node.ended_at,
        )


@view
class TreeView(View):
    """The graph around a job."""

    id: str = public("The job.")
    nodes: list[NodeView] = public("The job itself, then the others, the nearest first.")
    cut: bool = public("Whether there are more.")

    @classmethod
    def of(cls, tree: JobTree) -> Self:
        """Make the view of a graph."""
        return cls(id=tree.id, nodes=[NodeView.of(node) for node in tree.nodes], cut=tree.cut)


# -- the results of changes


@view
class AcceptedView(View):
    """A job that was enqueued."""

    job_id: str = public("The job.")
    status: str = public("Its state.")
    queue: str = public("Its queue.")
    priority: int = public("Its priority.")
    created_at: datetime | None = public("When it was made.")
    duplicate_of: str = public("The job that already has its unique key; no new job was made then.", default=ABSENT)
    scheduled_at: datetime | None = public("When it is due.", default=ABSENT)


@view
class PutBackView(View):
    """A job that was put back."""

    job_id: str = public("The job.")
    status: str = public("Its state.")
    delay: float = public("After how long it is due.", unit="seconds")


@view
class CalledOffView(View):
    """A job that was canceled or stopped."""

    job_id: str = public("The job.")
    status: str = public("Its state.")
    pending: bool = public("Whether it still runs, and its worker was sent the command.")


@view
class CopiedView(View):
    """A copy that was enqueued."""

    job_id: str = public("The copy.")
    status: str = public("Its state.")
    queue: str = public("Its queue.")
    copied_from: str = public("The job that it is a copy of.")


@view
class RequeuedView(View):
    """A job that was requeued."""

    job_id: str = public("The job.")
    status: str = public("Its state.")


@view
class DeletedView(View):
    """A job that was deleted."""

    job_id: str = public("The job.")
    deleted: bool = public("True.")
    kept: int = public("1 if the trash keeps it, else 0.")


@view
class RescheduledView(View):
    """A job that was rescheduled."""

    job_id: str = public("The job.")
    due_at: datetime = public("When it is due.")


def row_of(job: FoundJob) -> dict[str, Any]:
    """Return a found job as a flat row; its error is given by `error` (the class) and `error_at`."""
    from fusion.views.base import to_json

    shown = to_json(FoundJobView.of(job))
    error = shown.pop("error") or {}
    return cast(dict[str, Any], shown | {"error": error.get("class"), "error_at": error.get("at")})
