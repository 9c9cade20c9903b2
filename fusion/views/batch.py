"""A batch, as every interface shows it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from fusion.views.base import View, part, public, view
from fusion.views.job import OnFailure, ParentView

if TYPE_CHECKING:
    from typing import Self

    from fusion.jobs.batch_graph import BatchGraph
    from fusion.jobs.tree import TreeNode
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


Role = Literal["member", "on_complete", "on_success"]


@part
class MemberNodeView(View):
    """A member of a batch, or a job that follows it."""

    id: str = public("The id of the job, or `#` and the id of a batch.")
    role: Role = public(
        "`member`, or when it follows: `on_complete`, when all members have ended; `on_success`, when all have finished."
    )
    status: str = public("Its state. Of a member without a record: how it ended, or `open`.")
    queue: str | None = public("Its queue.")
    function: str | None = public("The function that it calls; of a batch its name.")
    parents: list[ParentView] = public("Those of the graph that it waits for, or waited for.")
    enqueued_at: datetime | None = public("When it entered its queue.")
    started_at: datetime | None = public("When its last run started.")
    ended_at: datetime | None = public("When it ended.")

    @classmethod
    def of(cls, node: TreeNode, role: str) -> Self:
        """Make the view of a member, or of a job that follows."""
        return cls(
            id=node.id,
            role=cast(Role, role),
            status=node.status,
            queue=node.queue or None,
            function=node.function or None,
            parents=[ParentView(id=one, on_failure=cast(OnFailure, policy)) for one, policy in node.parents.items()],
            enqueued_at=node.enqueued_at,
            started_at=node.started_at,
            ended_at=node.ended_at,
        )


@part
class MemberCountView(View):
    """Members of a batch that call the same function and are in the same state."""

    function: str | None = public("The function; `#` for batches in it, null if it is not known.")
    state: str = public("Their state. Of batches and of jobs without a record: how they ended, or `open`.")
    count: int = public("How many there are.")


@view
class BatchGraphView(View):
    """The graph of a batch."""

    id: str = public("The batch.")
    total: int = public("All members, jobs and batches.")
    counted: int = public("Members that are in `nodes` or `groups`.")
    nodes: list[MemberNodeView] = public("Up to 300 members, then the jobs that follow; of more members only those.")
    groups: list[MemberCountView] = public("More members by function and state.")

    @classmethod
    def of(cls, graph: BatchGraph) -> Self:
        """Make the view of a graph."""
        return cls(
            id=graph.id,
            total=graph.total,
            counted=graph.counted,
            nodes=[MemberNodeView.of(one, graph.follows.get(one.id, "member")) for one in graph.nodes],
            groups=[MemberCountView(function=one.function or None, state=one.state, count=one.count) for one in graph.groups],
        )


@view
class BatchCanceledView(View):
    """A batch that was canceled."""

    id: str = public("The batch.")
    canceled: int = public("Members that were canceled.")
    running: int = public("Members that run to their end.")
