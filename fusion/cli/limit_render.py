"""The output of the `limit` commands: functions of the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING

from fusion.cli.context import seconds
from fusion.cli.output import styled
from fusion.cli.tables import table, table_of
from fusion.kernel.timeutil import from_iso

if TYPE_CHECKING:
    from fusion.store.layout.limits import Limit
    from fusion.store.read.limit_inspector import LimitInfo
    from fusion.views.limit import KeyView


def bounds(limit: Limit) -> str:
    """Return a limit in words, like `2 at once (pinned), 100/60s`."""
    number = "any number at once" if limit.max_concurrent is None else f"{limit.max_concurrent:,} at once"
    rate = "" if limit.rate is None else f", {limit.rate}" + " (pinned)" * limit.rate_pinned
    return number + " (pinned)" * limit.pinned + rate


def listing(keys: Sequence[KeyView], at: datetime) -> list[str]:
    """Return a line for each key."""
    from fusion.views.limit import KeyView

    cells: dict[str, Callable[[KeyView], str]] = {
        "max_concurrent": lambda one: ("any" if one.max_concurrent is None else f"{one.max_concurrent}") + "*" * one.pinned,
        "rate": lambda one: (one.rate or "-") + "*" * one.rate_pinned,
        "stuck": _state,
    }
    order = ("key", "max_concurrent", "rate", "active_count", "held_count", "blocked_count", "last_used", "stuck")
    lines = table_of(KeyView, keys, at, order=order, cells=cells, left=("max_concurrent",))
    return [*lines, "* set here; overrides the jobs' own"] if any(one.pinned or one.rate_pinned for one in keys) else lines


def _state(one: KeyView) -> str:
    if one.stuck:
        return styled("stuck", fg="red")
    return styled("paused", fg="yellow") if one.paused else styled("held back", fg="yellow") if one.held_back_until else ""


def account(info: LimitInfo, at: datetime, program: str) -> list[str]:
    """Return all lines about one key."""
    limit = info.limit
    locking = (
        f", {info.lock_waiting} {'runs wait' if info.lock_waiting > 1 else 'run waits'} for the lock" if info.lock_waiting else ""
    )
    lines = [f"{limit.key}: {bounds(limit)}; {info.active} active, {info.held} slots held, {info.blocked} blocked{locking}"]
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
