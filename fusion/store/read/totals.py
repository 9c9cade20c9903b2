"""Lifetime counters of queues and concurrency keys, and the history of queues and functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from fusion.store.layout import codec
from fusion.store.layout.history import (
    BOUNDS,
    CLASSES,
    COUNTS,
    HOURS,
    MINUTES,
    PEAK,
    SLOWEST,
    WAITING,
    bucket,
    class_of,
    percentile,
)
from fusion.store.read.base import InspectorBase
from fusion.store.read.queue_inspector import QueueInfo
from fusion.store.scripting.host import PipelineCall, Steps, run

#: Counters of jobs that came in, and of those that went out.
CAME_IN = ("enqueued", "requeued")
WENT_OUT = ("completed", "failed", "expired", "discarded", "canceled", "stopped", "deleted")
_DAY = 86400


@dataclass(frozen=True, slots=True)
class Counters:
    """Lifetime counters. `by_priority`: for each class (0, 1, 2 with all above), by name."""

    totals: Mapping[str, int]
    by_priority: Mapping[int, Mapping[str, int]]

    @property
    def there(self) -> int:
        """The number of jobs that came in and did not go out: queued, scheduled, blocked, running."""
        return sum(self.totals[name] for name in CAME_IN) - sum(self.totals[name] for name in WENT_OUT)


def _is_short(number: str) -> bool:
    """Return True for up to three digits: Fusion writes no more into the name of a field, and Python reads no number of thousands."""
    return number.isdecimal() and len(number) < 4


def read_counters(row: Mapping[Any, Any]) -> Counters:
    """Sum the fields of a hash of counters; unknown fields are ignored."""
    totals, classes = Counter[str](), dict[int, Counter[str]]()
    for raw, value in row.items():
        name, _, priority = codec.text(raw).partition(":")
        if name in CAME_IN or name in WENT_OUT:
            count = codec.number(value)
            totals[name] += count
            if _is_short(priority):
                classes.setdefault(class_of(int(priority)), Counter())[name] += count
    return Counters(totals, classes)


class LifetimeTotals:
    """The lifetime counters of something that has `counters`."""

    __slots__ = ()
    counters: Counters

    @property
    def totals(self) -> Mapping[str, int]:
        """The lifetime counters by name: enqueued, completed, ...; 0 for a name that was never counted."""
        return self.counters.totals

    @property
    def total_enqueued(self) -> int:
        """The number of jobs that came in."""
        return self.totals["enqueued"]

    @property
    def total_completed(self) -> int:
        """The number of finished jobs."""
        return self.totals["completed"]

    @property
    def total_failed(self) -> int:
        """The number of failed jobs."""
        return self.totals["failed"]


@dataclass(frozen=True, slots=True)
class QueueStats(LifetimeTotals):
    """A queue at one moment, `last_updated` by the server's clock, and the outcomes of its jobs since it began."""

    info: QueueInfo
    counters: Counters
    last_updated: datetime

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.info.name

    @property
    def queue_length(self) -> int:
        """The number of jobs that wait there, blocked ones included."""
        return self.info.length

    @property
    def queued_count(self) -> int:
        """The number of these that wait only for their turn."""
        return self.info.count

    @property
    def active_count(self) -> int:
        """The number of running jobs."""
        return self.info.started

    @property
    def max_concurrent(self) -> int | None:
        """The most that may run at once over the fleet; None for any number."""
        return self.info.bounds.limit

    @property
    def oldest_enqueued_at(self) -> datetime | None:
        """The time at which the longest waiting job was enqueued, by the first job of each priority."""
        return self.info.oldest


@dataclass(slots=True)
class Step:
    """A minute or an hour: when it began, counts by name, and for each class (0, 1, 2 with all above) how many jobs waited and ran how long
    (see `history.BOUNDS`).

    `slowest`, `peak`: for an hour of a function, the slowest run in seconds, and the most bytes of memory that the process of a run held, as
    far as workers measured it.

    `depths`, `ages`: for a queue, by class, the most jobs that waited at once, and the longest wait of the oldest in seconds. Both are
    sampled every ten seconds; empty if nothing waited, or nothing was sampled."""

    at: datetime
    counts: Counter[str] = field(default_factory=Counter)
    waits: dict[int, list[int]] = field(default_factory=dict)
    runs: dict[int, list[int]] = field(default_factory=dict)
    depths: dict[int, int] = field(default_factory=dict)
    ages: dict[int, int] = field(default_factory=dict)
    slowest: float | None = None
    peak: int | None = None

    def add(self, priority: int, what: str, count: int) -> None:
        """Add the count of a field; an invalid field is ignored."""
        if what in COUNTS:
            self.counts[what] += count
        elif what[:1] in ("w", "r") and _is_short(what[1:]) and int(what[1:]) < len(BOUNDS):
            table = self.waits if what[0] == "w" else self.runs
            table.setdefault(class_of(priority), [0] * len(BOUNDS))[int(what[1:])] += count

    @property
    def slowest_run(self) -> float | None:
        """The slowest run in seconds: as measured, or the end of its range if that is a longer one, of a worker of an older version."""
        last = max((at for counts in self.runs.values() for at, count in enumerate(counts) if count), default=-1)
        if self.slowest is None or bucket(self.slowest) < last:
            return float(BOUNDS[last]) if last >= 0 else None
        return self.slowest

    def sampled(self, figures: str) -> None:
        """Read the samples of this step; invalid figures are ignored."""
        words = figures.split()
        if len(words) != 2 * CLASSES or not all(word.isdecimal() and len(word) < 16 for word in words):
            return
        for priority in range(CLASSES):
            if depth := int(words[2 * priority]):
                self.depths[priority] = self.depths.get(priority, 0) + depth
                self.ages[priority] = max(self.ages.get(priority, 0), int(words[2 * priority + 1]))


def summary(steps: list[Step]) -> dict[int, dict[str, dict[str, float | None]]]:
    """Return p50, p95 and p99 of wait and run of each class over all steps, in seconds."""
    found: dict[int, dict[str, dict[str, float | None]]] = {}
    for name in ("waits", "runs"):
        sums: dict[int, list[int]] = {}
        for step in steps:
            for priority, counts in getattr(step, name).items():
                total = sums.setdefault(priority, [0] * len(BOUNDS))
                total[:] = [a + b for a, b in zip(total, counts, strict=True)]
        for priority, total in sums.items():
            found.setdefault(priority, {})[name[:-1]] = {f"p{share}": percentile(total, share / 100) for share in (50, 95, 99)}
    return dict(sorted(found.items(), reverse=True))


class TotalsInspector(InspectorBase):
    """Reads counters and history. Counters are O(1); a history is a key for each hour of the last day, or for each day before."""

    def counters(self, queue: str) -> Counters:
        """Return the lifetime counters of a queue."""
        return run(self.counters_steps(queue))

    def counters_steps(self, queue: str) -> Steps[Counters]:
        """Do what `counters` does."""
        commands = PipelineCall(self.connection)
        commands.pipe.hgetall(self.keys.totals(queue))
        return read_counters((yield commands)[0])

    def key_counters(self, key: str) -> tuple[Counters, int, int]:
        """Return the lifetime counters of a concurrency key; how many jobs hold a slot of it, and how many wait for one."""
        row, held, waiting = self._batch(
            lambda pipe: (
                pipe.hgetall(self.keys.limit(key)),
                pipe.zcard(self.keys.limit_held(key)),
                pipe.zcard(self.keys.limit_waiting(key)),
            )
        )
        return read_counters(row), held, waiting

    def history(self, scope: str, name: str, since: float) -> list[Step]:
        """Return the steps of the last `since` seconds, the oldest first: minutes of up to a day, else hours of up to 30 days. `scope`:
        "queue" or "function"."""
        found, (tier, steps, keys) = self._steps(since)
        commands = PipelineCall(self.connection)
        for kind in (scope, WAITING) if scope == "queue" else (scope,):
            for key in keys:
                commands.pipe.hgetall(self.keys.history(f"{tier}:{kind}:{name}:{key}"))
        rows = commands()
        _count(found, zip(keys, rows, strict=False), steps)
        _sample(found, zip(keys, rows[len(keys) :], strict=False), steps)
        return list(found.values())

    def history_of(self, queues: Sequence[str], since: float) -> list[Step]:
        """Return the history of all these queues together. The depths of a step are the sums of the most that waited in each queue, the ages the
        longest. One round trip, and two keys for each hour and queue."""
        found, (tier, steps, keys) = self._steps(since)
        named = [(kind, key, f"{tier}:{kind}:{name}:{key}") for kind in ("queue", WAITING) for name in queues for key in keys]
        rows = self._batch(lambda pipe: [pipe.hgetall(self.keys.history(name)) for _, _, name in named])
        read = [(kind, key, row) for (kind, key, _), row in zip(named, rows, strict=True)]
        _count(found, ((key, row) for kind, key, row in read if kind != WAITING), steps)
        _sample(found, ((key, row) for kind, key, row in read if kind == WAITING), steps)
        return list(found.values())

    def histories(self, scope: str, names: Sequence[str], hours: int) -> dict[str, list[Step]]:
        """Return the history of each of these by hour, without samples. One round trip, and one or two keys for each of a day."""
        found, (tier, steps, keys) = self._steps(hours * 3600.0, HOURS)
        rows = iter(
            self._batch(
                lambda pipe: [pipe.hgetall(self.keys.history(f"{tier}:{scope}:{name}:{key}")) for name in names for key in keys]
            )
        )
        each = dict[str, list[Step]]()
        for name in names:
            own = {number: Step(step.at) for number, step in found.items()}
            _count(own, [(key, next(rows)) for key in keys], steps)
            each[name] = list(own.values())
        return each

    def function_history(self, name: str, since: float) -> tuple[list[Step], list[Step]]:
        """Return the steps of a function as `history` does, and the hours into which the last `since` seconds reach, which have the most of each
        figure."""
        steps = self.history("function", name, since)
        if since > _DAY or not steps:
            return steps, steps
        first = (steps[0].at - timedelta(minutes=1)).replace(minute=0)  # the time may begin in the minute before
        return steps, [hour for hour in self.histories("function", [name], int(since // 3600) + 2)[name] if hour.at >= first]

    def depths(self, queues: Sequence[str], since: float) -> list[list[int | None]]:
        """Return for each of these queues the most jobs that waited, by minute or hour, the latest last; None where nothing was sampled. One
        round trip."""
        found, (tier, steps, keys) = self._steps(since)
        first = next(iter(found), 0)
        rows = iter(
            self._batch(
                lambda pipe: [
                    pipe.hgetall(self.keys.history(f"{tier}:{WAITING}:{name}:{key}")) for name in queues for key in keys
                ],
                raise_on_error=False,
            )
        )
        series = list[list[int | None]]()
        for _ in queues:
            depths: list[int | None] = [None] * len(found)
            for key, row in zip(keys, rows, strict=False):
                for place, figures in row.items() if isinstance(row, dict) else ():
                    at = key * steps + codec.number(place, -1) - first
                    if 0 <= at < len(depths) and place.isdigit():
                        one = Step(found[first + at].at)
                        one.sampled(codec.text(figures))
                        depths[at] = sum(one.depths.values())
            series.append(depths)
        return series

    def _steps(
        self, since: float, tier_of: tuple[str, int, int, int] | None = None
    ) -> tuple[dict[int, Step], tuple[str, int, range]]:
        """Return empty steps for the last `since` seconds by number; their tier, how many are in a key, and the keys."""
        tier, step, steps, _ = tier_of or (MINUTES if since <= _DAY else HOURS)
        clock: Any = self.connection.time()
        last = clock[0] // step
        first = last - int(min(since, 30 * _DAY) // step) + 1
        found = {number: Step(datetime.fromtimestamp(number * step, timezone.utc)) for number in range(first, last + 1)}
        return found, (tier, steps, range(first // steps, last // steps + 1))

    def last_minutes(self, queues: Sequence[str], minutes: int) -> list[Step]:
        """Return what ended and what waited in the last minutes of all these queues together, the oldest minute first; how long jobs waited and
        ran is not read. Two round trips, and a few fields for each minute and queue."""
        found, (tier, steps, keys) = self._steps(60.0 * minutes, MINUTES)
        asked = list[tuple[str, int, str, list[str]]]()
        for key in keys:
            places = [str(at - key * steps) for at in found if at // steps == key]
            counted = [f"{place}:{of}:{what}" for place in places for of in range(CLASSES) for what in COUNTS]
            for name in queues:
                asked.append(("queue", key, self.keys.history(f"{tier}:queue:{name}:{key}"), counted))
                asked.append((WAITING, key, self.keys.history(f"{tier}:{WAITING}:{name}:{key}"), places))
        rows = self._batch(lambda pipe: [pipe.hmget(key, fields) for _, _, key, fields in asked]) if asked else []
        read = [
            (kind, key, {field: value for field, value in zip(fields, row, strict=True) if value is not None})
            for (kind, key, _, fields), row in zip(asked, rows, strict=True)
        ]
        _count(found, ((key, row) for kind, key, row in read if kind != WAITING), steps)
        _sample(found, ((key, row) for kind, key, row in read if kind == WAITING), steps)
        return list(found.values())

    def recent(self, queues: Sequence[str], minutes: int = 10) -> list[Counter[str]]:
        """Return how many jobs of each queue ended in the last minutes, by name (`completed`, `failed`, `retried`), as reported by workers so
        far. Two round trips, and a few fields of each queue."""
        (seconds, _), *totals = self._batch(lambda pipe: (pipe.time(), [pipe.hkeys(self.keys.totals(name)) for name in queues]))
        tier, step, steps, _ = MINUTES
        last = seconds // step
        asked: list[tuple[int, str, list[str]]] = []
        for index, (name, fields) in enumerate(zip(queues, totals, strict=True)):
            classes = {codec.text(field).rpartition(":")[2] for field in fields} | {"0", "1", "2"}
            by_key: dict[int, list[str]] = {}
            for at in range(last - minutes + 1, last + 1):
                places = [f"{at % steps}:{one}:{what}" for one in classes if one.isdecimal() for what in COUNTS]
                by_key.setdefault(at // steps, []).extend(places)
            asked += [(index, self.keys.history(f"{tier}:queue:{name}:{key}"), places) for key, places in by_key.items()]
        rows = self._batch(lambda pipe: [pipe.hmget(key, places) for _, key, places in asked]) if asked else []
        found = [Counter[str]() for _ in queues]
        for (index, _, places), row in zip(asked, rows, strict=True):
            for place, value in zip(places, row, strict=True):
                if value is not None:
                    found[index][place.rpartition(":")[2]] += codec.number(value)
        return found

    def history_names(self, scope: str) -> list[str]:
        """Return the queues, or functions, that have a history of their own."""
        return sorted(self._page(self.keys.history_names(scope)))


def _count(found: dict[int, Step], rows: Iterable[tuple[int, Mapping[Any, Any]]], steps: int) -> None:
    """Add the counts of these keys, each given with its number, to their steps."""
    # The queues' fields have the same names. Equal fields are summed first, as parsing a field takes longer than adding.
    sums: dict[int, dict[Any, int]] = {}
    for key, row in rows:
        total = sums.setdefault(key, {})
        for raw, value in row.items():
            total[raw] = total.get(raw, 0) + codec.number(value)
    for key, total in sums.items():
        for raw, count in total.items():
            place, _, rest = codec.text(raw).partition(":")
            priority, _, what = rest.partition(":")
            if not _is_short(place) or not (at := found.get(key * steps + int(place))):
                continue
            if _is_short(priority):
                at.add(int(priority), what, count)
            elif rest == SLOWEST:  # only functions have it, and each is read by itself: nothing was summed
                at.slowest = count / 1000
            elif rest == PEAK:
                at.peak = count


def _sample(found: dict[int, Step], rows: Iterable[tuple[int, Mapping[Any, Any]]], steps: int) -> None:
    """Add the samples of these keys, each given with its number, to their steps."""
    for key, row in rows:
        for place, figures in row.items():
            if (number := codec.number(place, -1)) >= 0 and (at := found.get(key * steps + number)):
                at.sampled(codec.text(figures))
