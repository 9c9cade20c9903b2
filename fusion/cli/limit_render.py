"""The output of the `limit` commands: functions of the data."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING

from fusion.cli.context import seconds
from fusion.cli.output import styled
from fusion.cli.tables import table
from fusion.kernel.timeutil import from_iso

if TYPE_CHECKING:
    from fusion.store.layout.limits import Limit
    from fusion.store.read.limit_inspector import LimitInfo


def bounds(limit: Limit) -> str:
    """Return a limit in words, like `2 at once (pinned), 100/60s`."""
    number = "any number at once" if limit.max_concurrent is None else f"{limit.max_concurrent:,} at once"
    rate = "" if limit.rate is None else f", {limit.rate}" + " (pinned)" * limit.rate_pinned
    return number + " (pinned)" * limit.pinned + rate


def listing(infos: Iterable[LimitInfo], at: datetime) -> list[str]:
    """Return a line for each key."""
    header = ("KEY", "LIMIT", "RATE", "ACTIVE", "HELD", "BLOCKED", "USED", "")
    rows = [
        (
            info.limit.key,
            ("any" if info.limit.max_concurrent is None else f"{info.limit.max_concurrent}") + "*" * info.limit.pinned,
            ("-" if info.limit.rate is None else f"{info.limit.rate}") + "*" * info.limit.rate_pinned,
            f"{info.active}",
            f"{info.held}",
            f"{info.blocked}",
            f"{seconds((at - info.last_used).total_seconds())} ago",
            _state(info),
        )
        for info in infos
    ]
    lines = table(header, rows, right=(3, 4, 5))
    return [*lines, "* set here; overrides the jobs' own"] if any("*" in row[1] + row[2] for row in rows) else lines


def _state(info: LimitInfo) -> str:
    if info.stuck:
        return styled("stuck", fg="red")
    return styled("paused", fg="yellow") if info.paused else styled("held back", fg="yellow") if info.held_back else ""


def account(info: LimitInfo, at: datetime, program: str) -> list[str]:
    """Return all lines about one key."""
    limit = info.limit
    lines = [f"{limit.key}: {bounds(limit)}; {info.active} active, {info.held} slots held, {info.blocked} blocked"]
    if info.paused:
        left = "" if limit.paused_until == inf else f" for {seconds(limit.paused_until - at.timestamp())} more"
        since = from_iso(limit.paused_since.encode())
        told = "" if since is None else f", since {seconds((at - since).total_seconds())}"
        told += f" by {limit.paused_by}" * bool(limit.paused_by) + f": {limit.paused_why}" * bool(limit.paused_why)
        lines.append(f"Paused{left}{told}; to go on: {program} limit resume {limit.key}")
    if info.held_back:
        left = seconds((info.held_back - at).total_seconds())
        lines.append(f"A task holds it back for {left} more (rate_limited); to go on: {program} limit resume {limit.key}")
    if info.stuck:
        lines.append("Stuck: jobs wait, and nothing of the key has started for ten minutes. These hold its slots:")
    if info.holders:
        cells = [
            (one.job_id, one.queue, one.status if one.started else f"{one.status}, not started", _ago(one.since, at))
            for one in info.holders
        ]
        lines += table(("JOB", "QUEUE", "STATE", "SINCE"), cells)
        if info.held > len(info.holders):
            lines.append(f"... and {info.held - len(info.holders)} more")
    return lines


def _ago(since: datetime | None, at: datetime) -> str:
    return "-" if since is None else f"{seconds((at - since).total_seconds())} ago"
