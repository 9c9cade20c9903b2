"""Fields of many jobs in their full form, whatever type their keys have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fusion.store.client.wire import answers
from fusion.store.layout.compact import DEFAULTS, SAME_AS, sources
from fusion.store.query.rows import Row
from fusion.store.read.base import InspectorBase
from fusion.store.read.walk import MOST, replies

#: How many calls of first-layout jobs are read in one round trip: each may be long.
_CALLS = 50


class JobRows(InspectorBase):
    """Reads jobs by their ids."""

    def rows(self, ids: Sequence[str], fields: Iterable[str]) -> list[Row | None]:
        """Read these fields of many jobs, 500 in a round trip. None for a job that is gone, or is no hash. `func` of a first-layout job is in
        its `data` and `serializer`, so these are read too."""
        names = sorted(fields)
        wanted, fills = sources(names), _fills(names)
        found: list[Row | None] = []
        for start in range(0, len(ids), MOST):
            rows = self._read(ids[start : start + MOST], wanted)
            found += [_meant(wanted, row, fills) if row and row.count(None) < len(row) else None for row in rows]
        return self._with_calls(ids, found) if "func" in names else found

    def _read(self, ids: Sequence[str], names: Sequence[str]) -> list[Any]:
        keys = [self.keys.job(job_id).encode() for job_id in ids]
        # A search reads thousands of rows: encoded by the client, each would cost twice the work that Redis does for it.
        head = b"*%d\r\n$5\r\nHMGET\r\n$" % (2 + len(names))
        tail = b"\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(name), name.encode()) for name in names)
        found = answers(self.connection, b"".join(b"%b%d\r\n%b%b" % (head, len(key), key, tail) for key in keys), len(keys))
        return found if found is not None else replies(self.connection, lambda pipe: [pipe.hmget(key, names) for key in keys])

    def _with_calls(self, ids: Sequence[str], rows: list[Row | None]) -> list[Row | None]:
        older = [at for at, row in enumerate(rows) if row is not None and row["func"] is None]
        for start in range(0, len(older), _CALLS):
            part = older[start : start + _CALLS]
            for at, call in zip(part, self._read([ids[at] for at in part], ("data", "serializer")), strict=True):
                data, serializer = call or (None, None)
                rows[at] = {**(rows[at] or {}), "data": data, "serializer": serializer}
        return rows


def _fills(names: Sequence[str]) -> list[tuple[str, str, bytes | None]]:
    """Return the fields whose absence has a meaning: the value of another field, or this default."""
    alike = [(name, SAME_AS[name], None) for name in names if name in SAME_AS]
    return alike + [(name, "", b"%d" % DEFAULTS[name]) for name in names if name in DEFAULTS]


def _meant(read: Sequence[str], row: Sequence[bytes | None], fills: Sequence[tuple[str, str, bytes | None]]) -> Row:
    """Return the full fields as `compact.meant` does, for fields other than `data`."""
    full = dict(zip(read, row, strict=True))
    if fills and full["func"] is not None:
        for name, other, default in fills:
            if full[name] is None:
                full[name] = full[other] if other else default
    return full
