"""The output of `failures`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fusion.cli.context import prog, seconds
from fusion.cli.stats_render import sparkline
from fusion.cli.tables import room, table_of
from fusion.cli.times import told
from fusion.kernel.redaction import cut
from fusion.views.failure import CountedFailuresView, FailureGroupView

if TYPE_CHECKING:
    from fusion.store.read.failure_inspector import GroupInfo

#: Most characters of a message in the table; columns of a terminal from which modules, and messages, are shown.
_MESSAGE, _NARROW, _WIDE = 80, 100, 140


def ago(moment: datetime | None, now: datetime) -> str:
    """Return how long ago that was: `5 min ago`."""
    return "-" if moment is None else f"{seconds((now - moment).total_seconds())} ago"


def rows_of(groups: Sequence[GroupInfo], now: datetime) -> list[str]:
    """Return a line for each group: with fixed columns for programs, on a terminal with as many as fit."""
    limit, views = room(), [FailureGroupView.of(one, now) for one in groups]
    if limit is None:
        return rows_of_jobs(views, now)
    short: dict[str, Callable[[CountedFailuresView], str]] = {
        "error_class": _last_name if limit < _NARROW else _error,
        "first_seen": lambda one: ago(one.first_seen, now).removesuffix(" ago"),
        "last_seen": lambda one: ago(one.last_seen, now).removesuffix(" ago"),
    }
    if limit < _WIDE:
        seen, where = ((), ()) if limit < _NARROW else (("last_seen",), ("error_frame",))  # what was said tells more than where
        order: Sequence[str] = ("id", "count", "last_hour", "last_day", *seen, "error_class", *where, "message")
        own = {**short, "error_frame": _where, "message": _CELLS["message"]}
        return table_of(FailureGroupView, views, order=order, only=True, cells=own)
    cells = _CELLS | short | {"hours": lambda one: f"|{sparkline(one.hours)}|"}
    order = ("id", "count", "last_hour", "last_day", "hours", *_ABOUT)
    return table_of(FailureGroupView, views, order=order, cells=cells, left=("count",))


def rows_of_jobs(groups: Sequence[CountedFailuresView], now: datetime) -> list[str]:
    """Return a line for each group, with the columns for programs."""
    return table_of(CountedFailuresView, groups, now, order=("count", *_ABOUT), cells=_CELLS, left=("count",))


def page_of(group: GroupInfo, jobs: Sequence[str], now: datetime) -> list[str]:
    """Return the lines of one group: its message, when it failed, its newest jobs, and what can be done about it."""
    error, where = _error(group), _where(group)
    hour, day = [0] * 60, group.within(timedelta(days=1), now)
    for minute, count in group.minutes.items():
        back = int((now - minute).total_seconds() // 60)
        if back < 60:
            hour[59 - back] += count
    lines = [
        f"{error} in {where}" if where != "-" else error,
        f"  group    {group.id}",
        f"  failed   {_count(group)} now, {sum(hour)} in the last hour, {day} in 24 hours, {group.total} since {told(group.first_seen)}",
        f"  last     {told(group.last_seen)}, {ago(group.last_seen, now)}",
    ]
    if group.queues:
        lines.append(f"  queues   {', '.join(f'{queue} {count}' for queue, count in group.queues.items())}")
    if group.example:
        at = f" at {group.error_frame}" if group.error_frame else ""
        lines.append(f"  example  {group.example}{at}" + (f": {group.message}" if group.message else ""))
    for name, counts in (("hour", hour), ("day", group.hours(now))):
        if any(counts):
            step = "a minute" if name == "hour" else "an hour"
            lines.append(f"  {name:8} |{sparkline(counts)}| a bar for {step}, at most {max(counts)}")
    if jobs:
        more = f", and {group.count - len(jobs)} more" if group.count > len(jobs) else ""
        lines += [f"  newest   {' '.join(jobs)}{more}", "", *_advice(group)]
    return lines


def _advice(group: GroupInfo) -> list[str]:
    query = f"--query group:{group.id}"
    return [
        f"To look at one:            {prog()} job show {group.example}",
        f"To put them back:          {prog()} requeue {query}",
        f"To set them aside instead: {prog()} quarantine {query} --reason WHY",
    ]


def _count(one: GroupInfo | CountedFailuresView) -> str:
    return f"{one.count}" + (f" ({one.quarantined} quarantined)" if one.quarantined else "")


def _error(one: GroupInfo | CountedFailuresView) -> str:
    return one.error_class.removeprefix("builtins.")


def _last_name(one: CountedFailuresView) -> str:
    return one.error_class.rpartition(".")[2]


def _where(one: GroupInfo | CountedFailuresView) -> str:
    return one.error_frame or getattr(one, "frame", None) or "-"


#: The columns of both kinds of groups, and their cells.
_ABOUT = ("error_class", "error_frame", "first_seen", "last_seen", "queues", "example", "message")
_CELLS: dict[str, Callable[[CountedFailuresView], str]] = {
    "count": _count,
    "error_class": _error,
    "error_frame": _where,
    "queues": lambda one: ", ".join(f"{queue} {count}" for queue, count in sorted(one.queues.items())),
    "message": lambda one: cut(one.message, _MESSAGE),
}
