"""Reads the trash: jobs that were deleted within the last hour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fusion.store.layout import codec
from fusion.store.layout.compact import meant, sources
from fusion.store.read.base import InspectorBase, moment

#: For how long deleted jobs are kept.
KEPT = timedelta(hours=1)
#: Jobs that are read in one round trip.
_PAGE = 500
_FIELDS = ("status", "origin", "func", "description", "created_at", "error_class", "quarantined")


@dataclass(frozen=True, slots=True)
class TrashEntry:
    """A job in the trash. `status`: its former status; `until`: when it is deleted for good; `bytes`: the size of its record."""

    id: str
    deleted_at: datetime
    until: datetime
    status: str
    queue: str
    function: str
    created_at: str
    error_class: str
    quarantined: str
    bytes: int


class TrashInspector(InspectorBase):
    """Reads the trash."""

    def count(self) -> int:
        """Return how many jobs are in it."""
        return int(self._newest("zcount"))

    def size(self) -> int:
        """Return how many bytes they take."""
        found: Any = self.connection.hget(self.keys.trash_sizes, "*")
        return int(found or 0)

    def one(self, job_id: str) -> TrashEntry | None:
        """Return one job; None if it is not in the trash."""
        found: Any = self.connection.zscore(self.keys.trash, job_id)
        entries = [] if found is None or found <= self._begin() else self._entries([(job_id, float(found))])
        return entries[0] if entries else None

    def page(self, offset: int = 0, limit: int = 100) -> list[TrashEntry]:
        """Return a page of it, the last deleted first."""
        rows: Any = self._newest("zrevrangebyscore", withscores=True, start=offset, num=limit) if limit else []
        return self._entries([(codec.text(member), float(score)) for member, score in rows])

    def all(self) -> Iterator[TrashEntry]:
        """Yield all of it, the last deleted first."""
        offset = 0
        while found := self.page(offset, _PAGE):
            yield from found
            offset += _PAGE

    def rows(self, job_ids: Sequence[str], names: Iterable[str]) -> list[dict[str, bytes | None]]:
        """Return some fields of jobs in the trash, in their full form."""
        read = sources(names := tuple(names))
        found = self._batch(lambda pipe: [pipe.hmget(self.keys.trash_job(job_id), read) for job_id in job_ids])
        return [meant(names, read, row) for row in found]

    def _begin(self) -> float:
        seconds, micros = self._clock()
        return seconds * 1000 + micros / 1000 - KEPT.total_seconds() * 1000

    def _clock(self) -> tuple[int, int]:
        found: Any = self.connection.time()
        return int(found[0]), int(found[1])

    def _newest(self, command: str, **more: Any) -> Any:
        bounds = (f"({self._begin():.0f}", "+inf")
        return getattr(self.connection, command)(self.keys.trash, *(reversed(bounds) if "rev" in command else bounds), **more)

    def _entries(self, found: Sequence[tuple[str, float]]) -> list[TrashEntry]:
        if not found:
            return []
        rows = self.rows([job_id for job_id, _ in found], _FIELDS)
        raw: Any = self.connection.hmget(self.keys.trash_sizes, [job_id for job_id, _ in found])
        return [
            _entry(job_id, score / 1000, row, size)
            for (job_id, score), row, size in zip(found, rows, raw, strict=True)
            if row["status"] is not None
        ]


def _entry(job_id: str, at: float, row: Mapping[str, bytes | None], size: bytes | None) -> TrashEntry:
    text = {name: "" if value is None else value.decode("utf-8", "replace") for name, value in row.items()}
    deleted_at = moment(at)
    return TrashEntry(
        job_id,
        deleted_at,
        deleted_at + KEPT,
        text["status"],
        text["origin"],
        text["func"] or text["description"].partition("(")[0],
        text["created_at"],
        text["error_class"],
        text["quarantined"],
        int(size or 0),
    )
