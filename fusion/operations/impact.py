"""The jobs that an operation would change: the number of jobs by queue and state, and some examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import monotonic

from fusion.operations.plan import OperationPlan
from fusion.operations.walk import stops
from fusion.store.query.grammar import queue_of, state_of
from fusion.store.read.search_inspector import SearchInspector

#: Jobs read at a time; ids remembered, because a scan of a changing set may return an id twice; examples.
_PAGE, _REMEMBERED, _EXAMPLES = 500, 300_000, 10


@dataclass(slots=True)
class Impact:
    """`matched`: the number of jobs; `by`: the number by queue and state; `examples`: id, queue and state of some. `complete`: all were read."""

    matched: int = 0
    by: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: list[tuple[str, str, str]] = field(default_factory=list)
    complete: bool = True


def measure(
    finder: SearchInspector,
    plan: OperationPlan,
    seconds: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> Impact:
    """Read all jobs that may match, and count those that do. Stops after about `seconds`, if given. `progress` is called after each part with
    the number of jobs read."""
    found, now, until = Impact(), finder.now(), inf if seconds is None else monotonic() + seconds
    seen, fields, states = set[str](), plan.query.fields | {"status", "origin", "original_queue"}, frozenset(plan.states)
    for stop in stops(finder.sources(plan.query)):
        cursor = 0
        while True:
            if monotonic() > until:
                found.complete = False
                return found
            cursor, ids = finder.scan(stop.source, cursor, _PAGE)
            ids = [job_id for job_id in dict.fromkeys(ids) if job_id not in seen]
            for job_id, row in zip(ids, finder.rows(ids, fields), strict=True):
                if monotonic() > until:
                    found.complete = False
                    return found
                if row is None or state_of(row) not in states or not plan.query.matches(job_id, row, now):
                    continue
                if len(seen) < _REMEMBERED:
                    seen.add(job_id)
                where = queue_of(row), state_of(row)
                found.matched += 1
                found.by[where] += 1
                if len(found.examples) < _EXAMPLES:
                    found.examples.append((job_id, *where))
            if progress:
                progress(len(ids))
            if cursor == 0:
                break
    return found
