"""Reads which jobs wait for which, and which job has a unique key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from redis.exceptions import NoPermissionError, RedisError, ResponseError

from fusion.store.layout import codec
from fusion.store.read.base import InspectorBase
from fusion.store.scripting.host import PipelineCall, Steps, run

#: Children that are read at a time.
SOME = 1000


class KinInspector(InspectorBase):
    """Reads parents and children of jobs."""

    def further_parents(self, job_id: str) -> list[str]:
        """Read the parents that don't fit into a job's own record."""
        found: Any = self.connection.hgetall(self.keys.parents(job_id))
        parts = [part for _, part in sorted((int(nth), part) for nth, part in found.items() if nth.isdigit())]
        return [member for part in parts if part for member in json.loads(part)]

    def circle(self, queues: Sequence[str], limit: int) -> list[str]:
        """Find jobs that wait for each other in a circle, among the oldest `limit` deferred jobs of each queue. Returns the ids of one
        circle, each of which waits for the next; empty if there is none."""
        rows = self._batch(lambda pipe: [pipe.zrange(self.keys.deferred(queue), 0, limit - 1) for queue in queues])
        ids = [codec.text(raw) for row in rows for raw in row]
        sets = self._batch(lambda pipe: [pipe.smembers(self.keys.unmet(one)) for one in ids]) if ids else []
        found = {one: {codec.text(raw).lstrip("?~") for raw in members} for one, members in zip(ids, sets, strict=True)}
        while free := [one for one, parents in found.items() if not parents & found.keys()]:
            for one in free:
                del found[one]
        line = list[str](sorted(found)[:1])
        while line and (following := min(found[line[-1]] & found.keys())) not in line:
            line.append(following)
        return line[line.index(following) :] if line else []

    def holder(self, unique_key: str) -> str:
        """Read the id of the job that has a unique key, or had it until its window began; empty if no job has it."""
        found: Any = self.connection.get(self.keys.unique(unique_key))
        return codec.text(found)

    def children(self, job_id: str, limit: int = 1000) -> list[str]:
        """List the jobs that have this one as a parent and have not ended, those that still wait for it first."""
        return self._page(self.keys.children(job_id), 0, limit)

    def offspring_steps(self, job_ids: Sequence[str], limit: int = 1000) -> Steps[list[list[str]]]:
        """List for each of these the jobs that have it as a parent, in one round trip. First up to `limit` that have not ended, then those
        that ever had it, of which a thousand are kept. A key of the wrong type counts as empty."""
        keys = self.keys
        commands = PipelineCall(self.connection, raise_on_error=False)
        for one in job_ids:
            commands.pipe.zrange(keys.children(one), 0, limit - 1)
            commands.pipe.smembers(keys.dependents(one))
        rows = yield commands
        for row in rows:
            if isinstance(row, RedisError) and (isinstance(row, NoPermissionError) or not isinstance(row, ResponseError)):
                raise row
        return [[*dict.fromkeys(_ids(rows[2 * i : 2 * i + 2]))] for i in range(len(job_ids))]

    def statuses(self, job_ids: Sequence[str]) -> list[str | None]:
        """Read the statuses of jobs in one round trip; None for those that are gone."""
        return run(self.statuses_steps(job_ids))

    def statuses_steps(self, job_ids: Sequence[str]) -> Steps[list[str | None]]:
        """Do what `statuses` does."""
        commands = PipelineCall(self.connection)
        for one in job_ids:
            commands.pipe.hget(self.keys.job(one), "status")
        rows = yield commands
        return [None if row is None else codec.text(row) for row in rows]

    def all_children_steps(self, job_ids: Sequence[str]) -> Steps[list[str]]:
        """Read what `offspring_steps` returns for all of these, with all those that have not ended."""
        all_children = list[str]()
        for one, children in zip(job_ids, (yield from self.offspring_steps(job_ids, SOME)), strict=True):
            all_children += children
            if len(children) >= SOME:
                all_children += yield from self._open_children(one)
        return all_children

    def _open_children(self, job_id: str) -> Steps[list[str]]:
        found, cursor = list[str](), -1
        while cursor:
            commands = PipelineCall(self.connection)
            commands.pipe.zscan(self.keys.children(job_id), max(0, cursor), count=SOME)
            ((cursor, members),) = yield commands
            found += [codec.text(member) for member, _ in members]
        return found


def _ids(rows: Sequence[Any]) -> Iterator[str]:
    for row in rows:
        if not isinstance(row, Exception):
            yield from map(codec.text, row)
