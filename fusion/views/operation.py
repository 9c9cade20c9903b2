"""A bulk operation, as every interface shows it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, cast

from fusion.kernel.timeutil import from_iso
from fusion.views.base import View, part, public, view

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from redis import Redis

    from fusion.operations.impact import Impact
    from fusion.operations.plan import OperationPlan
    from fusion.operations.record import Operation

Action = Literal["requeue", "cancel", "stop", "delete", "quarantine", "reprioritise"]
Status = Literal["running", "done", "canceled"]


@part
class LeftOutView(View):
    """Jobs that an operation left out for one reason."""

    count: int = public("How many.")
    means: str = public("The reason in words.")
    example: str | None = public("One of them.")


@view
class OperationView(View):
    """An operation and its progress."""

    id: str = public("Its id.", column="ID")
    action: Action = public("What it does.", column="ACTION")
    query: str = public("The query that selects its jobs.", column="QUERY")
    args: dict[str, str] = public("Further arguments of the action.")
    status: Status = public("Its state.", column="STATUS")
    by: str = public("Who began it.", column="WHO")
    began_at: datetime | None = public("When it began.")
    ended_at: datetime | None = public("When it ended.")
    canceled_by: str | None = public("Who canceled it.")
    matched: int = public("Jobs that matched when it began.", column="MATCHED")
    done: int = public("Jobs that it changed.", column="DONE")
    skipped: int = public("Jobs that no longer matched.", column="SKIPPED")
    refused: int = public("Jobs that could not be changed.", column="REFUSED")
    kept: int = public("Of deleted jobs, those that the trash keeps.")
    why: dict[str, LeftOutView] = public("Why jobs were skipped or refused, by word.")
    carrier: str | None = public("The process that runs it now.")
    carried_on: bool = public("Whether it has ended, or a live process can run it.")

    @classmethod
    def of(cls, one: Operation, carried_on: bool) -> Self:
        """Make the view of an operation."""
        from fusion.operations.actions import WHY

        return cls(
            id=one.id,
            action=cast(Action, one.action),
            query=one.query,
            args=dict(one.args),
            status=cast(Status, one.status),
            by=one.by,
            began_at=from_iso(one.began_at),
            ended_at=from_iso(one.ended_at),
            canceled_by=one.canceled_by or None,
            matched=one.total,
            done=one.done,
            skipped=one.skipped,
            refused=one.refused,
            kept=one.kept,
            why={
                word: LeftOutView(count=count, means=WHY.get(word, word), example=one.examples.get(word))
                for word, count in one.why.items()
            },
            carrier=one.carrier or None,
            carried_on=carried_on,
        )


@view
class OperationsView(View):
    """A page of operations."""

    operations: list[OperationView] = public("Running ones first, then the most recently ended.")
    total: int = public("How many there are in all.")
    offset: int = public("How many were left out before these.")


@part
class PartView(View):
    """Jobs of one queue and state."""

    queue: str = public("Their queue.")
    state: str = public("Their state.")
    count: int = public("How many.")


@part
class ExampleView(View):
    """One of the jobs."""

    id: str = public("The job.")
    queue: str = public("Its queue.")
    state: str = public("Its state.")


@view
class OperationPlannedView(View):
    """The preview of an operation: what it would change."""

    action: Action = public("What it would do.")
    query: str = public("The query that would select its jobs.")
    args: dict[str, str] = public("Further arguments of the action.")
    dry_run: bool = public("True.")
    matched: int = public("Jobs that match.")
    complete: bool = public("Whether all were read.")
    by: list[PartView] = public("How many of each queue and state, the most first.")
    examples: list[ExampleView] = public("Some of them.")

    @classmethod
    def of(cls, plan: OperationPlan, impact: Impact) -> Self:
        """Make the view of a plan and of what it would change."""
        return cls(
            action=cast(Action, plan.action.name),
            query=plan.query.text,
            args=dict(plan.args),
            dry_run=True,
            matched=impact.matched,
            complete=impact.complete,
            by=[PartView(queue=queue, state=state, count=count) for (queue, state), count in impact.by.most_common()],
            examples=[ExampleView(id=job_id, queue=queue, state=state) for job_id, queue, state in impact.examples],
        )


def views_of(connection: Redis, found: Sequence[Operation]) -> list[OperationView]:
    """Make the views of these operations. If one has no carrier, check once whether a live process could run it."""
    from fusion.operations import desk

    waits = any(one.status == "running" and not one.carrier for one in found)
    alive = waits and desk.has_carriers(connection)
    return [OperationView.of(one, one.status != "running" or bool(one.carrier) or alive) for one in found]
