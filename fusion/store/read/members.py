"""The members of a stage of a search in display order, with the fields that are read of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fusion.kernel.timeutil import EPOCH, from_iso
from fusion.store.layout import codec
from fusion.store.query.rows import QUEUE_FIELDS, STATE_FIELDS, Row
from fusion.store.query.sources import DIRECT, KeySource, Stage
from fusion.store.read.cursor import Place
from fusion.store.read.job_rows import JobRows
from fusion.store.read.walk import KEYS, MOST, Walk, replies

#: Most running jobs that a page examines: they are ordered by their start, which no set stores.
RUNNING = 10_000
_STARTED = frozenset({"started_at"}) | STATE_FIELDS | QUEUE_FIELDS
_COUNT = {"zset": "zcard", "list": "llen", "hash": "hlen", "string": "exists", "id": "exists"}


class Member(NamedTuple):
    """A job and its place. `row` is None if it is gone."""

    place: Place
    id: str
    row: Row | None


class Members:
    """Reads the members of stages, with these fields of each."""

    def __init__(self, jobs: JobRows, fields: frozenset[str]) -> None:
        self._jobs, self._connection, self._fields = jobs, jobs.connection, fields

    def total(self, stage: Stage) -> int:
        """Count the members."""
        parts = (stage.sources[start : start + KEYS] for start in range(0, len(stage.sources), KEYS))
        return sum(int(count or 0) for part in parts for count in self._counts(part))

    def _counts(self, sources: Sequence[KeySource]) -> list[Any]:
        return replies(self._connection, lambda pipe: [getattr(pipe, _COUNT[one.kind])(one.key) for one in sources])

    def chunks(self, stage: Stage, after: Place | None, size: int) -> Iterator[list[Member]]:
        """Yield the members behind the place in chunks: first about `size`, which mostly suffices, then more. Never yields an empty one."""
        if stage.name == DIRECT:
            yield from self._direct(stage, after)
        elif stage.name == "started":
            yield from self._running(stage, after)
        else:
            yield from self._in_turn(stage, after, size)

    def _with_rows(self, places: list[Place]) -> list[Member]:
        ids = [codec.text(member) for _, member in places]
        return list(map(Member, places, ids, self._jobs.rows(ids, self._fields)))

    def _direct(self, stage: Stage, after: Place | None) -> Iterator[list[Member]]:
        owners = [one for one in stage.sources if one.kind == "string"]
        named = replies(self._connection, lambda pipe: [pipe.get(one.key) for one in owners]) if owners else []
        begin = len(self._jobs.keys.job(""))
        ids = [codec.text(raw) for raw in named if raw] if owners else [one.key[begin:] for one in stage.sources]
        rows = self._jobs.rows(ids, self._fields)
        found = [Member((float(at), b""), job_id, row) for at, (job_id, row) in enumerate(zip(ids, rows, strict=True))]
        if fresh := [one for one in found if after is None or one.place > after]:
            yield fresh

    def _running(self, stage: Stage, after: Place | None) -> Iterator[list[Member]]:
        """Yield running jobs, the first to start first. The sets are ordered by leases, which are renewed, so a page reads when each job
        started."""
        ids = [*dict.fromkeys(self.running(stage))][:RUNNING]
        rows = self._jobs.rows(ids, _STARTED)
        found = sorted((_began(row), job_id.encode()) for job_id, row in zip(ids, rows, strict=True) if row is not None)
        fresh = [place for place in found if after is None or place > after]
        for start in range(0, len(fresh), MOST):
            yield self._with_rows(fresh[start : start + MOST])

    def running(self, stage: Stage) -> Iterator[str]:
        """Yield the ids of running jobs, in no order; one may come twice."""
        open_ones: list[tuple[KeySource, int]] = [(source, 0) for source in stage.sources]
        while open_ones:
            part, open_ones = open_ones[:KEYS], open_ones[KEYS:]
            rows = self._scans(part)
            for (source, _), row in zip(part, rows, strict=True):
                cursor, found = row or (0, [])
                yield from (codec.text(one if source.kind == "hash" else one[0]) for one in found)
                if int(cursor):
                    open_ones.append((source, int(cursor)))

    def _scans(self, part: Sequence[tuple[KeySource, int]]) -> list[Any]:
        return replies(
            self._connection,
            lambda pipe: [
                (pipe.hscan if source.kind == "hash" else pipe.zscan)(source.key, cursor, count=MOST) for source, cursor in part
            ],
        )

    def _in_turn(self, stage: Stage, after: Place | None, size: int) -> Iterator[list[Member]]:
        inboxes = [source for source in stage.sources if source.kind == "list"]
        if after is None or after[0] != -math.inf or not inboxes:
            walk = Walk(
                self._connection, [source.key for source in stage.sources if source.kind == "zset"], stage.descending, after
            )
            while places := walk.take(size):
                yield self._with_rows(places)
                size = MOST
            after = None
        for source in inboxes:
            yield from self._inbox(source, after)

    def _inbox(self, source: KeySource, after: Place | None) -> Iterator[list[Member]]:
        """Read a list that is consumed from its head: if the last job seen is gone, so are all before it."""
        begin = 0
        if after is not None:
            (at,) = replies(self._connection, lambda pipe: pipe.lpos(source.key, after[1]))
            begin = 0 if at is None else int(at) + 1
        while ids := self._part(source, begin):
            yield self._with_rows([(-math.inf, job_id) for job_id in ids])
            begin += len(ids)

    def _part(self, source: KeySource, begin: int) -> list[bytes]:
        return replies(self._connection, lambda pipe: pipe.lrange(source.key, begin, begin + MOST - 1))[0] or []


def _began(row: Row) -> float:
    began = from_iso(row.get("started_at"))
    return 0.0 if began is None else float(round((began - EPOCH).total_seconds() * 1e6))
