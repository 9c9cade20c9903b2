"""Failure groups as they are now: failed jobs by cause, and how many failed when. Everything is read in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from fusion.kernel.redaction import masked_text
from fusion.store.layout import codec
from fusion.store.read.base import InspectorBase, moment, texts

#: Most queues that are named for a group, those with the most jobs first.
NAMED = 20
#: Hours whose minutes are read: enough for the last 24 at any minute of the hour.
_HOURS = 25
_DAY = timedelta(days=1)
#: Groups read in one round trip.
_CHUNK = 50


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """Jobs that failed with one class of error in one function of the user's own code. `frame`: `module:function`, or the function that the
    jobs call if the place is not known. `count`: how many are failed now; `total`: how many ever failed. `queues`: the number of jobs by
    queue, for the 20 queues with the most. `example`: the last of the jobs that still exists; `error_frame` (with its line) and `message` are
    taken from it, masked. `minutes`: how many failed in each minute of the last 24 hours in which any did. `complete`: False if the counts
    cover only a part of the jobs.
    """

    id: str
    error_class: str
    frame: str
    count: int
    total: int
    quarantined: int
    first_seen: datetime | None
    last_seen: datetime | None
    queues: Mapping[str, int]
    example: str = ""
    error_frame: str = ""
    message: str = ""
    minutes: Mapping[datetime, int] = field(default_factory=dict)
    complete: bool = True

    def within(self, span: timedelta, now: datetime) -> int:
        """Return how many failed in the last `span` before `now`, to the minute."""
        return sum(count for minute, count in self.minutes.items() if minute > now - span)

    def hours(self, now: datetime) -> list[int]:
        """Return how many failed in each of the last 24 hours; the last one ends at `now`."""
        return self._steps(now, 3600)

    def quarters(self, now: datetime) -> list[int]:
        """Return the same for each quarter of an hour."""
        return self._steps(now, 900)

    def _steps(self, now: datetime, size: int) -> list[int]:
        found = [0] * (86400 // size)
        for minute, count in self.minutes.items():
            ago = int((now - minute).total_seconds() // size)
            if 0 <= ago < len(found):
                found[-1 - ago] += count
        return found


def message_of(error_class: str, reason: str) -> str:
    """Return the text of an error without its class, masked: it may quote a job's data."""
    for name in (error_class, error_class.removeprefix("builtins."), error_class.rpartition(".")[2]):
        reason = reason.removeprefix(f"{name}: ") if name else reason
    return masked_text(reason)


class FailureInspector(InspectorBase):
    """Reads failure groups."""

    def grouped(self) -> bool:
        """Return True once every failed job is in a group. After an upgrade, `clean` adds the jobs that failed before, which takes a moment."""
        return self.connection.hget(self.keys.clean, "grouped") is not None

    def now(self) -> datetime:
        """Read the server's clock."""
        found: Any = self.connection.time()
        return datetime.fromtimestamp(found[0] + found[1] / 1e6, timezone.utc)

    def count(self, since: datetime | None = None) -> int:
        """Return how many groups there are, or how many had a failure since then."""
        found: Any = self.connection.zcount(self.keys.failures, _score(since), "+inf")
        return int(found)

    def groups(self, offset: int = 0, limit: int = 50, since: datetime | None = None) -> list[GroupInfo]:
        """Return a page of the groups, that with the latest failure first; those without failed jobs now are included."""
        found: Any = self.connection.zrevrangebyscore(self.keys.failures, "+inf", _score(since), offset, limit) if limit else []
        return self.infos([codec.text(group) for group in found])

    def largest(self, offset: int = 0, limit: int = 50) -> tuple[list[GroupInfo], int, int]:
        """Return a page of the groups that hold jobs, the largest first; also how many such groups there are, and how many jobs they hold.
        Reads every group, of which there are at most a thousand."""
        ids = self._page(self.keys.failures, desc=True)
        counts = self._batch(lambda pipe: [pipe.zcard(self.keys.failure_jobs(group)) for group in ids]) if ids else []
        held = sorted((-count, place) for place, count in enumerate(counts) if count)
        page = self.infos([ids[place] for _, place in held[offset : offset + limit]])
        return sorted(page, key=lambda one: (-one.count, one.error_class, one.frame)), len(held), sum(counts)

    def group(self, group: str) -> GroupInfo | None:
        """Return one group; None if there is none of this id."""
        found = self.infos([group])
        return found[0] if found else None

    def jobs(self, group: str, offset: int = 0, limit: int = 50) -> list[str]:
        """Return a page of its failed jobs, the last to fail first."""
        return self._page(self.keys.failure_jobs(group), offset, limit, desc=True)

    def infos(self, groups: Sequence[str]) -> list[GroupInfo]:
        """Return those of these groups that exist."""
        found: list[GroupInfo] = []
        for start in range(0, len(groups), _CHUNK):
            found += self._chunk(groups[start : start + _CHUNK])
        return found

    def _chunk(self, groups: Sequence[str]) -> list[GroupInfo]:
        keys, now = self.keys, self.now()
        hours = range(int(now.timestamp()) // 3600 - _HOURS + 1, int(now.timestamp()) // 3600 + 1)
        rows = self._batch(
            lambda pipe: [
                (
                    pipe.hgetall(keys.failure(group)),
                    pipe.zcard(keys.failure_jobs(group)),
                    pipe.zrange(keys.failure_queues(group), 0, NAMED - 1, desc=True, withscores=True),
                    [pipe.hgetall(keys.failure_minutes(group, hour)) for hour in hours],
                )
                for group in groups
            ]
        )
        size = 3 + _HOURS
        found = []
        for nth, group in enumerate(groups):
            about, count, queues, *counts = rows[nth * size : (nth + 1) * size]
            if about:
                found.append(_info(group, texts(about), count, queues, _minutes(hours, counts, now)))
        return self._with_examples(found)

    def _with_examples(self, found: list[GroupInfo]) -> list[GroupInfo]:
        named = [one.example for one in found if one.example]
        if not named:
            return found
        read = self._batch(
            lambda pipe: [pipe.hmget(self.keys.job(job_id), "reason", "error_frame") for job_id in named], raise_on_error=False
        )
        rows = dict(zip(named, read, strict=True))
        return [_told(one, rows.get(one.example)) for one in found]


def _score(since: datetime | None) -> float | str:
    return "-inf" if since is None else since.timestamp() * 1000


def _told(info: GroupInfo, row: Any) -> GroupInfo:
    if row is None or isinstance(row, Exception):
        return info
    return replace(info, message=message_of(info.error_class, codec.text(row[0])), error_frame=codec.text(row[1]))


def _minutes(hours: Sequence[int], rows: Sequence[Mapping[Any, Any]], now: datetime) -> dict[datetime, int]:
    found = {}
    for hour, row in zip(hours, rows, strict=True):
        for minute, count in texts(row).items():
            if minute.isdecimal() and len(minute) < 3:
                at = datetime.fromtimestamp(hour * 3600 + int(minute) * 60, timezone.utc)
                if at > now - _DAY:
                    found[at] = codec.number(count)
    return found


def _info(
    group: str, about: Mapping[str, str], count: int, queues: Sequence[tuple[Any, float]], minutes: Mapping[datetime, int]
) -> GroupInfo:
    first, last = codec.number(about.get("first")), codec.number(about.get("last"))
    return GroupInfo(
        id=group,
        error_class=about.get("error_class", ""),
        frame=about.get("frame", ""),
        count=count,
        total=codec.number(about.get("total")),
        quarantined=codec.number(about.get("quarantined")),
        first_seen=moment(first / 1000) if first else None,
        last_seen=moment(last / 1000) if last else None,
        queues={codec.text(name): int(number) for name, number in queues},
        example=about.get("example", "") if count else "",
        minutes=minutes,
    )
