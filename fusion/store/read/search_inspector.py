"""Searches jobs by a query: returns pages, or a count. A page reads a bounded number of jobs, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import lru_cache
from time import monotonic
from typing import Any

from redis.exceptions import ResponseError

from fusion.kernel.scope import EVERYTHING, Scope
from fusion.store.layout import codec
from fusion.store.layout.names import LIST_QUEUES, is_delivery_id
from fusion.store.query.grammar import STATES, Query, Row, state_of
from fusion.store.query.sources import DIRECT, SHARED, KeySource, Known, Stage, stages
from fusion.store.read.base import moment
from fusion.store.read.cursor import Cursor, Place, Searched, in_words, unknown
from fusion.store.read.found_jobs import FIELDS, FoundJob, found_job
from fusion.store.read.job_rows import JobRows
from fusion.store.read.members import Member, Members
from fusion.store.read.walk import MOST, Walk, replies

__all__ = ["Count", "FoundJob", "FoundPage", "SearchInspector", "Searched", "in_words"]

#: Most jobs of one state that a search examines where no index helps, and most jobs of one page.
LOOKED, LARGEST_PAGE = 10_000, 1000
#: Seconds for which one page searches; the next one continues.
LOOKING = 0.1


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page of jobs. `after`: where the next page begins; empty at the end. A page that ran out of time has it even if it is not full, or
    empty. `looked` and `total`: jobs examined, and jobs there are, in the states that this page reached; `searched`: the same by state.
    `complete`: no matching job was left out up to here."""

    jobs: tuple[FoundJob, ...]
    after: str
    looked: int
    total: int
    complete: bool
    searched: tuple[Searched, ...] = ()


@dataclass(frozen=True, slots=True)
class Count:
    """The number of jobs that match, and of those examined. `complete`: none was left out."""

    matched: int
    looked: int
    complete: bool


class SearchInspector(JobRows):
    """Finds jobs. Never changes anything; raises redis-py's errors as they come."""

    #: Returns the time in seconds, to measure how long a page has searched.
    clock: Callable[[], float] = staticmethod(monotonic)

    def page(self, query: Query, scope: Scope = EVERYTHING, limit: int = 50, after: str = "") -> FoundPage:
        """Read a page of the jobs that match and may be seen, from `after` of the previous page on. InvalidQuery if `after` is invalid.

        States come one after another. Running jobs: the first to start first. Ended jobs: the newest first. Waiting jobs: in the order of
        their turn. A job that stays in its state from the first page to the last is on exactly one page. Where no index helps, the first
        10,000 jobs of a state are examined. A page that is not full after 100 ms ends there, with an `after` to continue from.
        """
        return _Search(self, query.within(scope), scope).page(max(1, min(limit, LARGEST_PAGE)), Cursor.read(after))

    def count(
        self,
        query: Query,
        scope: Scope = EVERYTHING,
        most: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Count:
        """Count the jobs that match, exactly, however many must be examined; with `most` no more than that. `progress` is called after each
        part with the number of jobs examined."""
        return _Search(self, query.within(scope), scope).count(most, progress)

    def sources(self, query: Query, scope: Scope = EVERYTHING) -> list[KeySource]:
        """List the keys in which a job that matches, and may be seen, may be."""
        narrow = query.within(scope)
        return list(dict.fromkeys(source for stage in stages(narrow, self.keys, self.known()) for source in stage.sources))

    def scan(self, source: KeySource, cursor: int = 0, count: int = MOST) -> tuple[int, list[str]]:
        """Read some ids of a source from a cursor on; returns the next cursor, 0 at the end. As with SCAN, an id may come twice. A key of a
        wrong type yields nothing."""
        if source.kind == "id":
            return 0, [source.key.removeprefix(self.keys.job(""))]
        try:
            return self._scan(source, cursor, count)
        except ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            return 0, []

    def _scan(self, source: KeySource, cursor: int, count: int) -> tuple[int, list[str]]:
        connection: Any = self.connection
        if source.kind == "string":
            owner = connection.get(source.key)
            return 0, [codec.text(owner)] if owner else []
        if source.kind == "list":
            ids = connection.lrange(source.key, cursor, cursor + count - 1)
            return cursor + count if len(ids) == count else 0, [codec.text(job_id) for job_id in ids]
        if source.kind == "hash":
            cursor, fields = connection.hscan(source.key, cursor, count=count)
            return int(cursor), [codec.text(job_id) for job_id in fields]
        cursor, pairs = connection.zscan(source.key, cursor, count=count)
        return int(cursor), [codec.text(job_id) for job_id, _ in pairs]

    def known(self) -> Known:
        """Read what the sources depend on."""
        queues, fifos, waits = replies(
            self.connection,
            lambda pipe: (pipe.smembers(self.keys.queues), pipe.smembers(self.keys.fifos), pipe.hkeys(self.keys.waits)),
        )
        names = (self.keys.name_of_queue(codec.text(key)) for key in queues or ())
        return Known(
            tuple(sorted(names)),
            LIST_QUEUES | {codec.text(name) for name in fifos or ()},
            tuple(sorted(name for raw in waits or () if ":" in (name := codec.text(raw)))),
        )

    def now(self) -> datetime:
        """Read the server's clock."""
        found: Any = self.connection.time()
        return datetime.fromtimestamp(found[0] + found[1] / 1e6, timezone.utc)


@dataclass(frozen=True, slots=True)
class _Stop:
    """The end of a page: behind this place of its last stage (None for the stage's beginning), and how many of the stage had been examined."""

    place: Place | None
    looked: int


@dataclass(slots=True)
class _Hit:
    """A matching job, its place, and how many had been examined there."""

    stage: int
    member: Member
    looked: int


class _Search:
    """The search of one call."""

    def __init__(self, inspector: SearchInspector, query: Query, scope: Scope) -> None:
        self._inspector, self._query, self._scope = inspector, query, scope
        self._until = inspector.clock() + LOOKING
        self._now = inspector.now()
        self._stages = stages(query, inspector.keys, inspector.known())
        self._members = Members(inspector, query.fields)
        self._met: set[str] = set()
        self._allows = lru_cache(1000)(lambda queue: not queue or scope.allows(codec.text(queue)))
        self._slow = bool(query.wild)  # a job may take a millisecond: the clock is read after each
        self._began = False  # some were examined: the next page would begin further on

    def page(self, limit: int, cursor: Cursor) -> FoundPage:
        """Return the page that begins at the cursor."""
        begin = self._begin(cursor)
        self._met.update(cursor.shown)
        hits, searched, stop = list[_Hit](), list(cursor.cut), None
        for at in range(begin, len(self._stages)):
            place, looked = (cursor.place, cursor.looked) if at == begin else (None, 0)
            told, stop = self._look(at, place, looked, limit + 1, hits)
            searched.append(told)
            if stop is not None or len(hits) > limit:
                break
        after = ""
        if len(hits) > limit:
            last = hits[limit - 1]
            after = self._end(last.stage, _Stop(last.member.place, last.looked), hits[:limit], cursor, searched)
        elif stop is not None:
            after = self._end(at, stop, hits, cursor, searched)
        if len(hits) >= limit:  # and so it ends because it is full
            searched = [replace(one, goes_on=False) for one in searched]
        return FoundPage(
            jobs=self._shown([hit.member.id for hit in hits[:limit]]),
            after=after,
            looked=sum(one.looked for one in searched),
            total=sum(one.total for one in searched),
            complete=not any(one.cut for one in searched),
            searched=tuple(searched),
        )

    def _begin(self, cursor: Cursor) -> int:
        names = [stage.name for stage in self._stages]
        if cursor.stage and cursor.stage not in names:
            raise unknown()
        return names.index(cursor.stage) if cursor.stage else 0

    def _end(self, at: int, stop: _Stop, shown: list[_Hit], cursor: Cursor, searched: list[Searched]) -> str:
        before = {stage.name for stage in self._stages[:at]}
        direct = [hit.member.id for hit in shown if self._stages[hit.stage].name == DIRECT and len(self._stages) > 1]
        cut = [one for one in searched if one.cut and one.state in before]
        return Cursor(self._stages[at].name, stop.place, stop.looked, cut, [*cursor.shown, *direct]).text()

    def _late(self) -> bool:
        return self._began and self._is_over()

    def _is_over(self) -> bool:
        return self._inspector.clock() >= self._until

    def _look(self, at: int, place: Place | None, looked: int, need: int, hits: list[_Hit]) -> tuple[Searched, _Stop | None]:
        """Examine a stage until enough match, or the time is over. Returns how far, and where to continue if the page ends here.

        Where a set has jobs that the reader may not see, `looked` counts only visible ones: neither the number nor the place of the others
        may be revealed.
        """
        stage = self._stages[at]
        mixed = not self._scope.all and not all(source.queue for source in stage.sources)
        total = self._members.total(stage)
        if (total or mixed) and self._late():
            return Searched(stage.name, 0, 0 if mixed else total, False, True), _Stop(None, 0)
        room = LOOKED if stage.exact else LOOKED - looked
        size = min(MOST, need if stage.exact else max(100, 2 * need))
        state = stage.state.encode()
        cut, goes_on, seen, passed, late = room <= 0, False, None, 0, False
        for chunk in () if cut else self._members.chunks(stage, place, size):
            before = passed
            for member in chunk[:room]:
                passed += 1
                if mixed and (member.row is None or not self._may_see(member.row)):
                    continue
                looked, seen = looked + 1, member.place
                if self._fits(state, member):
                    hits.append(_Hit(at, member, looked))
                if self._slow and self._is_over():
                    break
            room, self._began = room - (passed - before), True
            if len(hits) >= need:
                break
            behind = (passed if mixed else looked) < total
            if room <= 0:
                cut, goes_on = behind and not stage.exact, behind and stage.exact
                break
            if seen is not None and self._late():
                goes_on = behind or late  # the number of a set that shrank meanwhile may be too low
                late = True
                if goes_on:
                    break
        if mixed:
            total = looked
        return Searched(stage.name, looked, max(total, looked), cut, goes_on), _Stop(seen, looked) if goes_on else None

    def _may_see(self, row: Row) -> bool:
        """Return True if both the job's queue and the one to which it goes back may be seen."""
        return self._scope.all or (self._allows(row["origin"]) and self._allows(row["original_queue"]))

    def _fits(self, state: bytes, member: Member) -> bool:
        _, job_id, row = member
        if (
            row is None
            or not (self._scope.all or self._may_see(row))
            or job_id in self._met
            or not _stands(state, row)
            or not self._query.matches(job_id, row, self._now)
        ):
            return False
        self._met.add(job_id)
        return True

    def _shown(self, ids: Sequence[str]) -> tuple[FoundJob, ...]:
        """Return these jobs as they are now; jobs that are gone are left out."""
        keys, rows = self._inspector.keys, self._inspector.rows(ids, FIELDS)
        found = [(job_id, row) for job_id, row in zip(ids, rows, strict=True) if row is not None and self._may_see(row)]
        timed = [job_id for job_id, row in found if state_of(row) == "scheduled"]
        sets = sorted({codec.text(row["waits_in"]) for _, row in found if state_of(row) == "blocked" and row["waits_in"]})
        answers = replies(
            self._inspector.connection,
            lambda pipe: (
                [pipe.zscore(keys.scheduled, job_id) for job_id in timed],
                [pipe.hget(keys.waits, name) for name in sets],
            ),
        )
        due = {job_id: moment(score) for job_id, score in zip(timed, answers, strict=False) if score is not None}
        waits = {name: codec.text(why).partition(" ")[2] for name, why in zip(sets, answers[len(timed) :], strict=True)}
        return tuple(found_job(job_id, row, due.get(job_id), waits) for job_id, row in found)

    def count(self, most: int | None, progress: Callable[[int], None] | None) -> Count:
        """Count the jobs that match."""
        matched = looked = 0
        for stage in self._stages:
            if stage.exact and _told_by_sets(stage):
                total = self._members.total(stage)
                matched, looked = matched + total, looked + total
            else:
                for seen, fit in self._counted(stage):
                    matched, looked = matched + fit, looked + seen
                    if progress:
                        progress(seen)
                    if most is not None and matched >= most:
                        break
            if most is not None and matched >= most:
                return Count(most, looked, matched == most and stage is self._stages[-1])
        return Count(matched, looked, True)

    def _counted(self, stage: Stage) -> Iterator[tuple[int, int]]:
        """Yield for each chunk how many were examined and how many match."""
        if stage.exact and stage.name in SHARED:
            # From these sets only deliveries are left out, which their ids show.
            walk = Walk(self._inspector.connection, [source.key for source in stage.sources], stage.descending)
            while places := walk.take(MOST):
                yield len(places), sum(not is_delivery_id(codec.text(member)) for _, member in places)
            return
        state = stage.state.encode()
        for chunk in self._members.chunks(stage, None, MOST):
            yield len(chunk), sum(self._fits(state, member) for member in chunk)


def _stands(state: bytes, row: Row) -> bool:
    """Return True if the job is in the state of the set (empty: any), or in one that only another program or version knows."""
    return not state or row["status"] == state or state_of(row) not in STATES


def _told_by_sets(stage: Stage) -> bool:
    return stage.name not in SHARED and all(source.kind == "zset" and source.state and source.queue for source in stage.sources)
