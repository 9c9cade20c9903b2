"""Failure groups counted from the failed jobs themselves: for viewers restricted to some queues, who may not see the fleet's counts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fusion.jobs.visible import QUEUES, seen
from fusion.kernel.scope import Scope
from fusion.kernel.timeutil import from_iso
from fusion.store.layout.codec import text
from fusion.store.layout.names import is_reserved
from fusion.store.read.failure_inspector import NAMED, GroupInfo, message_of
from fusion.store.read.inspector import Inspector

#: Failed jobs that are read, from the end of their set; and those read in one round trip.
LOOKED_AT, _CHUNK = 10_000, 500
_FIELDS = ("status", "failure_group", "error_class", "error_frame", "reason", "func", "ended_at", "quarantined", *QUEUES)
_LINE = re.compile(r":[0-9]+\Z")
_DAY = timedelta(days=1)


@dataclass(slots=True)
class _Gathered:
    """The facts of a group so far. `jobs`: each with the time when it failed, the newest last."""

    error_class: str
    frame: str
    jobs: list[tuple[str, datetime | None]] = field(default_factory=list)
    quarantined: int = 0
    queues: dict[str, int] = field(default_factory=dict)
    minutes: dict[datetime, int] = field(default_factory=dict)
    reason: str = ""
    error_frame: str = ""


def group_id(error_class: str, frame: str) -> str:
    """Return the group's id for an error class and a `module:function`, made as the Lua scripts make it."""
    return hashlib.sha1(f"{error_class}\n{frame}".encode(), usedforsecurity=False).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Scanned:
    """The groups of the jobs that were read, the latest failure first, and the job ids of each, newest first. `complete`: all failed jobs were
    read."""

    groups: list[GroupInfo]
    jobs: Mapping[str, list[str]]
    complete: bool


def scanned(inspector: Inspector, scope: Scope) -> Scanned:
    """Read the newest failed jobs, and group those that this scope may see."""
    ids = inspector.members("failed", "", -LOOKED_AT, -1)
    complete, now, found = len(ids) < LOOKED_AT, inspector.now(), dict[str, _Gathered]()
    for start in range(0, len(ids), _CHUNK):
        part = ids[start : start + _CHUNK]
        for job_id, row in zip(part, inspector.table(part, _FIELDS), strict=True):
            if not isinstance(row, Exception) and text(row["status"]) == "failed" and seen(scope, row):
                _gather(found, job_id, row, now)
    groups = [_info(group, one, complete) for group, one in found.items()]
    groups.sort(key=lambda one: (one.last_seen is not None, one.last_seen or now, one.id), reverse=True)
    return Scanned(groups, {group: [job_id for job_id, _ in reversed(one.jobs)] for group, one in found.items()}, complete)


def _gather(found: dict[str, _Gathered], job_id: str, row: Mapping[str, bytes | None], now: datetime) -> None:
    queue = text(row["original_queue"]) or text(row["origin"])
    if is_reserved(queue):
        return
    reason = text(row["reason"])
    error_class = text(row["error_class"]) or reason[:200].partition(":")[0] or "unknown"
    frame = _LINE.sub("", text(row["error_frame"])) or text(row["func"])
    one = found.setdefault(text(row["failure_group"]) or group_id(error_class, frame), _Gathered(error_class, frame))
    at = from_iso(row["ended_at"])
    one.jobs.append((job_id, at))
    one.reason, one.error_frame = reason, text(row["error_frame"])
    one.quarantined += bool(row["quarantined"])
    one.queues[queue] = one.queues.get(queue, 0) + 1
    if at is not None and now - _DAY < at <= now:
        minute = at.replace(second=0, microsecond=0)
        one.minutes[minute] = one.minutes.get(minute, 0) + 1


def _info(group: str, one: _Gathered, complete: bool) -> GroupInfo:
    times = [at for _, at in one.jobs if at is not None]
    most = sorted(one.queues.items(), key=lambda pair: (-pair[1], pair[0]))[:NAMED]
    return GroupInfo(
        id=group,
        error_class="other" if group == "other" else one.error_class,
        frame="" if group == "other" else one.frame,
        count=len(one.jobs),
        total=len(one.jobs),
        quarantined=one.quarantined,
        first_seen=min(times, default=None),
        last_seen=max(times, default=None),
        queues=dict(most),
        example=one.jobs[-1][0],
        error_frame=one.error_frame,
        message=message_of(one.error_class, one.reason),
        minutes=one.minutes,
        complete=complete,
    )
