"""A batch, as every interface shows it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from fusion.views.base import View, part, public, view

if TYPE_CHECKING:
    from typing import Self

    from fusion.store.read.batch_inspector import BatchInfo

Status = Literal["open", "running", "canceled", "success", "complete"]


@view
class BatchView(View):
    """A batch and its progress."""

    id: str = public("Its id.", column="BATCH")
    name: str | None = public("Its name.", column="NAME")
    status: Status = public(
        "`open`: it accepts more members; `success`: all members finished; `complete`: all ended, and some did not finish.",
        column="STATUS",
    )
    total: int = public("All members, jobs and batches.", column="TOTAL")
    open: int = public("Members that have not ended.", column="OPEN")
    finished: int = public("Members that finished.", column="FINISHED")
    failed: int = public("Members that failed.", column="OTHER")
    canceled: int = public("Members that were canceled.")
    stopped: int = public("Members that were stopped.")
    deleted: int = public("Members that were deleted.")
    created_at: datetime | None = public("When it was made.", column="CREATED")
    closed_at: datetime | None = public("When it was closed: it accepts no more members.")
    canceled_at: datetime | None = public("When it was canceled.")
    ended_at: datetime | None = public("When all members had ended for the first time.")
    success_at: datetime | None = public("When all members had finished.")
    abandoned: bool = public("Whether its producer failed to close it.")
    parent: str | None = public("The batch that it is in.")
    on_complete: str | None = public("The job that follows when all members have ended.")
    on_success: str | None = public("The job that follows when all have finished.")

    @classmethod
    def of(cls, info: BatchInfo, **more: Any) -> Self:
        """Make the view of a batch. `more`: the fields of a larger size."""
        return cls(
            id=info.id,
            name=info.name or None,
            status=cast(Status, info.status),
            total=info.total,
            open=info.open,
            finished=info.finished,
            failed=info.outcomes.get("failed", 0),
            canceled=info.outcomes.get("canceled", 0),
            stopped=info.outcomes.get("stopped", 0),
            deleted=info.outcomes.get("deleted", 0),
            created_at=info.created_at,
            closed_at=info.closed_at,
            canceled_at=info.canceled_at,
            ended_at=info.ended_at,
            success_at=info.success_at,
            abandoned=info.abandoned,
            parent=info.parent,
            on_complete=info.on_complete,
            on_success=info.on_success,
            **more,
        )


@view
class BatchesView(View):
    """A page of batches."""

    batches: list[BatchView] = public("The newest first.")
    total: int = public("How many there are in all.")
    offset: int = public("How many were left out before these.")


@part
class MemberView(View):
    """A member of a batch."""

    id: str = public("The id of the job, or `#` and the id of a batch.")
    status: str | None = public("How it ended, or `open`.")


@view
class BatchWithMembersView(BatchView):
    """A batch with a page of its members."""

    members: list[MemberView] = public("In the order in which they were added.")
    offset: int = public("How many were left out before these.")


@view
class BatchCanceledView(View):
    """A batch that was canceled."""

    id: str = public("The batch.")
    canceled: int = public("Members that were canceled.")
    running: int = public("Members that run to their end.")
