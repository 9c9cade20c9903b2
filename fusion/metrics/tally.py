"""Counts what a process's jobs did since its start: plain numbers, added where an outcome is noted anyway."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fusion.metrics.catalogue import (
    CALLBACKS_FAILED,
    CALLBACKS_RETRIED,
    DELIVERED,
    ERRORS,
    FAILED_TOTAL,
    FINISHED_TOTAL,
    LOST_TOTAL,
    MOST_NAMES,
    OTHER,
    PRIORITIES,
    RETRIED_TOTAL,
    RETURNED_TOTAL,
    RUN,
    STOPPED_TOTAL,
    TASK_FAILED,
    TASK_FINISHED,
    TASK_RETRIED,
    TASK_RUN,
    WAIT,
)
from fusion.metrics.figures import Figures
from fusion.store.layout.history import BOUNDS, CLASSES

#: What each kind of outcome counts as: the place in a row. A kind that is not named went back to its queue.
_PLACES = {"finished": 0, "failed": 1, "retry": 2, "stopped": 3, "lost": 5, "suspect": 5}
_RETURNED = 4
_OUTCOMES = (FINISHED_TOTAL, FAILED_TOTAL, RETRIED_TOTAL, STOPPED_TOTAL, RETURNED_TOTAL, LOST_TOTAL)
#: A row: counts by outcome, then the buckets of runs and of waits; its sums of seconds are kept apart, as they are no whole numbers.
_RUNS = len(_OUTCOMES)
_WAITS = _RUNS + len(BOUNDS)
_WIDTH = _WAITS + len(BOUNDS)
#: Digits of a class's name that are not shown: a task may make its classes from what it was given.
_DIGITS = re.compile(r"\d{4,}")
_LONGEST = 200


class _Row:
    __slots__ = ("counts", "ran", "waited")

    def __init__(self) -> None:
        self.counts = [0] * _WIDTH
        self.ran = self.waited = 0.0


class JobTally:
    """Counts outcomes by priority; with `full` also by queue, by task and by class of error. A name that comes after 500 others counts as
    `other` for good, so that no counter ever goes down."""

    def __init__(self, *, full: bool, queues: Iterable[str] = ()) -> None:
        """`queues`: those that are known from the start, so that their counters begin at 0 and Prometheus sees the first increase."""
        self.full = full
        self._rows: dict[tuple[str, int], _Row] = {}
        self._queues: set[str] = set()
        self._tasks: dict[str, _Row] = {}
        self._errors: dict[str, int] = {}
        for queue in queues if full else ("",):
            for of in range(CLASSES):
                self._row(queue, of)

    def note(self, kind: str, queue: str, of: int) -> None:
        """Count an outcome that Redis has accepted. `of`: the class of its priority."""
        row = self._rows.get((queue if self.full else "", of)) or self._row(queue, of)
        row.counts[_PLACES.get(kind, _RETURNED)] += 1

    def note_run(self, queue: str, of: int, seconds: float, ran: int, wait: float, waited: int) -> None:
        """Count the times of a run that finished or failed. `ran`, `waited`: the buckets of `seconds` and `wait`; -1: it is no first run."""
        row = self._rows.get((queue if self.full else "", of)) or self._row(queue, of)
        row.counts[_RUNS + ran] += 1
        row.ran += seconds
        if waited >= 0:
            row.counts[_WAITS + waited] += 1
            row.waited += wait

    def note_names(self, kind: str, task: str, seconds: float, ran: int, error: str) -> None:
        """Count the same run by its task, and by the class of its error."""
        row = self._tasks.get(task)
        if row is None:
            row = self._tasks.setdefault(task if len(self._tasks) < MOST_NAMES else OTHER, _Row())
        row.counts[_PLACES[kind]] += 1
        row.counts[_RUNS + ran] += 1
        row.ran += seconds
        if error:
            name = _DIGITS.sub("#", error[:_LONGEST])
            if name not in self._errors and len(self._errors) >= MOST_NAMES:
                name = OTHER
            self._errors[name] = self._errors.get(name, 0) + 1

    def _row(self, queue: str, of: int) -> _Row:
        if not self.full:
            queue = ""
        elif queue not in self._queues:
            if len(self._queues) < MOST_NAMES:
                self._queues.add(queue)
            else:
                queue = OTHER
        return self._rows.setdefault((queue, of), _Row())

    def put_callbacks(self, figures: Figures) -> None:
        """Add the counts of a courier, whose jobs are deliveries."""
        for metric, place in ((DELIVERED, 0), (CALLBACKS_FAILED, 1), (CALLBACKS_RETRIED, 2)):
            figures.put(metric, sum(row.counts[place] for row in list(self._rows.values())))

    def put(self, figures: Figures) -> None:
        """Add the counts."""
        for (queue, of), row in list(self._rows.items()):
            labels = queue, PRIORITIES[of]
            for place, metric in enumerate(_OUTCOMES):
                figures.put(metric, row.counts[place], *labels)
            # A page takes long by its histograms: those of hundreds of queues, if nothing ran there, are left out.
            for metric, counts, seconds in ((RUN, row.counts[_RUNS:_WAITS], row.ran), (WAIT, row.counts[_WAITS:], row.waited)):
                if not self.full or any(counts):
                    figures.put_spread(metric, counts, seconds, *labels)
        for task, row in list(self._tasks.items()):
            for place, metric in enumerate((TASK_FINISHED, TASK_FAILED, TASK_RETRIED)):
                figures.put(metric, row.counts[place], task)
            figures.put_spread(TASK_RUN, row.counts[_RUNS:_WAITS], row.ran, task)
        for error, count in list(self._errors.items()):
            figures.put(ERRORS, count, error)
