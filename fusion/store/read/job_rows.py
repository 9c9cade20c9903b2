"""Fields of many jobs, as they are meant, whatever stands in their keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fusion.store.layout.compact import meant, sources
from fusion.store.query.rows import Row
from fusion.store.read.base import InspectorBase
from fusion.store.read.walk import MOST, replies

#: Calls of jobs of the first layout that are read in one round trip: they may be long.
_CALLS = 50


class JobRows(InspectorBase):
    """Reads jobs by their ids."""

    def rows(self, ids: Sequence[str], fields: Iterable[str]) -> list[Row | None]:
        """Read these fields of many jobs, 500 in a round trip. None for a job that is gone, or is no hash. With `func`, of jobs of the first
        layout `data` and `serializer` too, which tell it."""
        names = sorted(fields)
        read = sources(names)
        found: list[Row | None] = []
        for start in range(0, len(ids), MOST):
            found += [
                meant(names, read, row) if row is not None and any(value is not None for value in row) else None
                for row in self._read(ids[start : start + MOST], read)
            ]
        return self._with_calls(ids, found) if "func" in names else found

    def _read(self, ids: Sequence[str], names: Sequence[str]) -> list[Any]:
        return replies(self.connection, lambda pipe: [pipe.hmget(self.keys.job(job_id), names) for job_id in ids])

    def _with_calls(self, ids: Sequence[str], rows: list[Row | None]) -> list[Row | None]:
        older = [at for at, row in enumerate(rows) if row is not None and row["func"] is None]
        for start in range(0, len(older), _CALLS):
            part = older[start : start + _CALLS]
            for at, call in zip(part, self._read([ids[at] for at in part], ("data", "serializer")), strict=True):
                data, serializer = call or (None, None)
                rows[at] = {**(rows[at] or {}), "data": data, "serializer": serializer}
        return rows
