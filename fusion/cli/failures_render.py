"""The output of `failures`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fusion.cli.context import prog, seconds
from fusion.cli.stats_render import sparkline
from fusion.cli.tables import room, table
from fusion.cli.times import told
from fusion.kernel.redaction import cut

if TYPE_CHECKING:
    from fusion.store.read.failure_inspector import GroupInfo

#: Most characters of a message in the table; columns of a terminal from which modules, and messages, are shown.
_MESSAGE, _NARROW, _WIDE = 80, 100, 140


def ago(moment: datetime | None, now: datetime) -> str:
    """Return how long ago that was: `5 min ago`."""
    return "-" if moment is None else f"{seconds((now - moment).total_seconds())} ago"


def rows_of(groups: Sequence[GroupInfo], now: datetime) -> list[str]:
    """Return a line for each group: with fixed columns for programs, on a terminal with as many as fit."""
    limit = room()
    if limit is None:
        header = ("COUNT", "ERROR", "WHERE", "FIRST", "LAST", "QUEUES", "EXAMPLE", "MESSAGE")
        return table(
            header,
            [[_count(one), *_what(one), ago(one.first_seen, now), ago(one.last_seen, now), *_whose(one)] for one in groups],
        )
    hour = [str(one.within(timedelta(hours=1), now)) for one in groups]
    day = [str(one.within(timedelta(days=1), now)) for one in groups]
    if limit < _WIDE:
        narrow = ("GROUP", "COUNT", "1H", "24H", "LAST", "ERROR", "WHERE")
        lines = [
            [one.id, str(one.count), hour[i], day[i], _when(one, now)[1], _short(one, limit), _what(one)[1]]
            for i, one in enumerate(groups)
        ]
        return table(narrow, lines, (1, 2, 3))
    wide = ("GROUP", "COUNT", "1H", "24H", "BY HOUR", "FIRST", "LAST", "ERROR", "WHERE", "QUEUES", "EXAMPLE", "MESSAGE")
    return table(
        wide,
        [
            [one.id, _count(one), hour[i], day[i], _bars(one.hours(now)), *_when(one, now), *_what(one), *_whose(one)]
            for i, one in enumerate(groups)
        ],
        (2, 3),
    )


def page_of(group: GroupInfo, jobs: Sequence[str], now: datetime) -> list[str]:
    """Return the lines of one group: its message, when it failed, its newest jobs, and what can be done about it."""
    error, where = _what(group)
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


def _count(one: GroupInfo) -> str:
    return f"{one.count}" + (f" ({one.quarantined} quarantined)" if one.quarantined else "")


def _what(one: GroupInfo) -> list[str]:
    return [one.error_class.removeprefix("builtins."), one.error_frame or one.frame or "-"]


def _short(one: GroupInfo, limit: int) -> str:
    """Return the error and its place; the class by its last name if there is little room."""
    return one.error_class.rpartition(".")[2] if limit < _NARROW else _what(one)[0]


def _when(one: GroupInfo, now: datetime) -> list[str]:
    """Return the times without the word `ago`, to save room."""
    return [ago(one.first_seen, now).removesuffix(" ago"), ago(one.last_seen, now).removesuffix(" ago")]


def _whose(one: GroupInfo) -> list[str]:
    queues = ", ".join(f"{queue} {count}" for queue, count in sorted(one.queues.items()))
    return [queues, one.example, cut(one.message, _MESSAGE)]


def _bars(hours: Sequence[int]) -> str:
    return f"|{sparkline(hours)}|"
