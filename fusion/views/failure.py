"""Failed jobs grouped by error, as every interface shows them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fusion.views.base import View, part, public, view

if TYPE_CHECKING:
    from typing import Self

    from fusion.jobs.failures import FailureGroup
    from fusion.store.read.failure_inspector import GroupInfo


@part
class CountedFailuresView(View):
    """Jobs that failed with one class of error at one place, counted from the jobs themselves."""

    error_class: str = public("The class of the error.", column="ERROR")
    message: str = public("The message of the last error, masked.", column="MESSAGE")
    error_frame: str | None = public("Where the last one was raised: module, function and line.", column="WHERE")
    count: int = public("How many are failed now.", column="COUNT")
    quarantined: int = public("Of these, jobs that were set aside.")
    first_seen: datetime | None = public("When the first one failed.", column="FIRST")
    last_seen: datetime | None = public("When the last one failed.", column="LAST")
    queues: dict[str, int] = public("How many came from each queue; the 20 with the most.", column="QUEUES")
    example: str | None = public("The last of them that still exists.", column="EXAMPLE")

    @classmethod
    def counted(cls, group: FailureGroup) -> Self:
        """Make the view of a group that was counted from the jobs themselves."""
        return cls(
            error_class=group.error_class,
            message=group.message,
            error_frame=group.error_frame or None,
            count=group.count,
            quarantined=group.quarantined,
            first_seen=group.first_seen,
            last_seen=group.last_seen,
            queues=dict(group.queues),
            example=group.example or None,
        )


@view
class FailureGroupView(CountedFailuresView):
    """A failure group as Redis keeps it."""

    id: str = public("Its id.", column="GROUP")
    frame: str | None = public("Where they were raised: module and function.")
    total: int = public("How many ever failed in this way.")
    last_hour: int = public("How many failed in the last hour.", column="1H")
    last_day: int = public("How many failed in the last 24 hours.", column="24H")
    hours: list[int] = public("How many failed in each of the last 24 hours, the last one at the end.", column="BY HOUR")
    trend: list[int] = public("The same for each quarter of an hour.")

    @classmethod
    def of(cls, group: GroupInfo, now: datetime, **more: Any) -> Self:
        """Make the view of a group as it is now. `more`: the fields of a larger view."""
        return cls(
            id=group.id,
            error_class=group.error_class,
            message=group.message,
            error_frame=group.error_frame or None,
            frame=group.frame or None,
            count=group.count,
            quarantined=group.quarantined,
            total=group.total,
            last_hour=group.within(timedelta(hours=1), now),
            last_day=group.within(timedelta(days=1), now),
            first_seen=group.first_seen,
            last_seen=group.last_seen,
            queues=dict(group.queues),
            example=group.example or None,
            hours=group.hours(now),
            trend=group.quarters(now),
            **more,
        )


@view
class FailuresView(View):
    """A page of failure groups."""

    groups: list[FailureGroupView] = public("The group with the latest failure first.")
    total: int = public("How many there are in all.")
    offset: int = public("How many were left out before these.")
    complete: bool = public("Whether all failed jobs were looked at.")


@part
class MinuteView(View):
    """A minute in which something failed."""

    at: datetime = public("When it began.")
    failed: int = public("How many failed in it.")


@view
class FailureView(FailureGroupView):
    """A failure group with a page of its jobs."""

    minutes: list[MinuteView] = public("Minutes of the last 24 hours in which something failed.")
    jobs: list[str] = public("The newest first.")
    offset: int = public("How many were left out before these.")
    complete: bool = public("Whether all failed jobs were looked at.")

    @classmethod
    def whole(cls, group: GroupInfo, now: datetime, jobs: list[str], offset: int = 0, *, complete: bool = True) -> Self:
        """Make the view of a group and of a page of its jobs."""
        minutes = [MinuteView(at=at, failed=count) for at, count in sorted(group.minutes.items())]
        return cls.of(group, now, minutes=minutes, jobs=jobs, offset=offset, complete=complete)
