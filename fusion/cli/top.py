"""`top`: watch queues, workers and running jobs. A frame takes a few round trips, however large the fleet is."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from fusion.cli import names, top_render, top_screen
from fusion.cli.arguments import FiniteRange
from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command
from fusion.cli.output import echo
from fusion.cli.times import utc_option
from fusion.cli.top_render import MINUTES, Reading, Throughput

if TYPE_CHECKING:
    from fusion.store.read.inspector import Inspector, QueueInfo
    from fusion.store.read.totals import Counters, Step

#: Most things that a frame reads; further ones are only counted.
MOST_QUEUES, MOST_WORKERS, MOST_JOBS, MOST_FAILED = 200, 300, 1000, 50
#: Seconds over which a rate is measured.
_SPAN = 60.0
#: Seconds between two readings of the graph: workers write its numbers about as often. It adds up this number of queues, the busiest ones.
_WRITTEN, _DRAWN = 10.0, 50


class Rates:
    """Jobs per minute, from the difference between the counters of two readings: exact, and at most a minute old."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, Mapping[str, Counters]]] = deque()

    def note(self, counters: Mapping[str, Counters], at: float) -> dict[str, Throughput]:
        """Add a reading, and return the rates up to it."""
        while len(self._past) > 1 and self._past[1][0] <= at - _SPAN:
            self._past.popleft()
        first = self._past[0] if self._past else None
        self._past.append((at, counters))
        if first is None or at <= first[0]:
            return {}
        factor = 60.0 / (at - first[0])
        return {name: _rate(counters[name], first[1][name], factor) for name in counters.keys() & first[1].keys()}


class Minutes:
    """The last minutes of the queues, for the graph: read again only after some seconds."""

    def __init__(self) -> None:
        self._steps: tuple[Step, ...] = ()
        self._due = 0.0

    def read(self, inspector: Inspector, queues: Sequence[QueueInfo], at: float) -> tuple[Step, ...]:
        """Return the last minutes of the busiest of these queues together."""
        if at >= self._due:
            busiest = sorted(queues, key=lambda one: -(one.flow.went if one.flow else 0.0))[:_DRAWN]
            self._steps = tuple(inspector.last_minutes([one.name for one in busiest], MINUTES))
            self._due = at + _WRITTEN
        return self._steps


def _rate(new: Counters, old: Counters, factor: float) -> Throughput:
    from fusion.store.read.totals import CAME_IN, WENT_OUT

    def grown(*counted: str) -> float:
        return max(0.0, factor * sum(new.totals[name] - old.totals[name] for name in counted))

    return Throughput(grown(*CAME_IN[:2]), grown(*WENT_OUT), grown("failed"))


@command(example="run_worker.py top\n  run_worker.py top 'sms*' -i 0.5\n  run_worker.py top --count 2")
@click.argument("queues", nargs=-1, metavar="[QUEUES]...")
@click.option(
    "-i",
    "--interval",
    type=FiniteRange(0.1, 24 * 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@click.option("-n", "--count", type=click.IntRange(1), metavar="N", help="End after N frames.  [default: 1 without a terminal]")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@utc_option
@shared_options
def top(cli: Cli, queues: tuple[str, ...], interval: float, count: int | None, as_json: bool) -> None:
    """Watch queues, workers and the slowest running jobs.

    QUEUES may be wildcards. Keys: the arrows choose a job, Enter opens it as `job show` does, and closes it again; s stops it as `stop` does,
    after a question; f shows the last failed jobs, or the workers again; p freezes the picture and goes on, r reads at once, q quits. The graph
    has a column for each minute, the current one last, and is of the 50 busiest queues at most. IN and OUT are jobs per minute, over the last
    minute or since the start; FAILED are those of OUT that failed. If there are very many queues, workers or jobs, some are left out and counted.
    Without a terminal it prints plain frames.
    """
    chosen = [names.check(name, patterns=True) for name in names.split(queues)]
    rates, minutes = Rates(), Minutes()

    def read(with_failed: bool) -> Reading:
        return gather(cli, chosen, rates, minutes, with_failed)

    if as_json:
        echo(json.dumps(top_render.document(read(True))))
    elif sys.stdout.isatty():
        top_screen.watch(cli, read, interval, count)
    else:
        _plain(read, interval, count or 1)
    cli.broken()  # each frame shows it


def gather(cli: Cli, chosen: list[str], rates: Rates, minutes: Minutes, with_failed: bool = False) -> Reading:
    """Read all data of a frame."""
    from fusion.jobs.moment import failed_jobs, running_jobs
    from fusion.kernel.timeutil import now
    from fusion.store.access import glance_of
    from fusion.store.client.connections import url_of

    inspector, glance = cli.onlooker, glance_of(cli.looking)
    existing = inspector.queue_names()
    listed = names.known(chosen, existing)
    some = listed[:MOST_QUEUES]
    infos = tuple(inspector.queues(some))
    counters = dict(zip(some, glance.counters(some), strict=True))
    fleet = glance.workers()
    workers = tuple(inspector.workers(fleet[:MOST_WORKERS]))
    jobs = running_jobs(inspector, workers, MOST_JOBS)
    if chosen:
        jobs = [job for job in jobs if job.queue in listed]
    failed = tuple(failed_jobs(inspector, glance.failed(MOST_FAILED))) if with_failed else None
    return Reading(
        at=now(),
        where=url_of(cli.connection),
        totals=inspector.totals(),
        queues=infos,
        queue_count=len(listed),
        workers=workers,
        worker_count=len(fleet),
        jobs=tuple(jobs),
        held=sum(one.count for one in inspector.blocked() if not chosen or one.queue in listed),
        counters=counters,
        rates=rates.note(counters, time.monotonic()),
        minutes=minutes.read(inspector, infos, time.monotonic()),
        failed=failed,
        broken=tuple(cli.broken()),
    )


def _plain(read: Callable[[bool], Reading], interval: float, count: int) -> None:
    for number in range(count):
        if number:
            time.sleep(interval)
        echo(top_render.text(read(False), width=None, height=None) + ("\n" if number < count - 1 else ""))
