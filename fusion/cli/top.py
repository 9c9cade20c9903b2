"""`top`: watch queues, workers and running jobs. A frame takes a few round trips, however large the fleet is."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from shutil import get_terminal_size
from threading import Thread
from typing import TYPE_CHECKING

import click

from fusion.cli import names, screen, top_render
from fusion.cli.arguments import FiniteRange
from fusion.cli.context import Cli, shared_options
from fusion.cli.hints import command
from fusion.cli.output import echo
from fusion.cli.tables import room
from fusion.cli.times import utc_option
from fusion.cli.top_render import Reading, Throughput

if TYPE_CHECKING:
    from fusion.store.read.totals import Counters

#: Most things that a frame reads; further ones are only counted.
MOST_QUEUES, MOST_WORKERS, MOST_JOBS, MOST_FAILED = 200, 300, 1000, 50
#: Seconds over which a rate is measured.
_SPAN = 60.0
_HELP = {"q": "quit", "p": "freeze", "r": "read now", "f": "failures"}


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

    QUEUES may be wildcards. Keys: q quits, p freezes the picture and goes on, r reads at once, f shows the last failed jobs, or the workers again.
    IN and OUT are jobs per minute, over the last minute or since the start; FAILED are those of OUT that failed. If there are very many queues,
    workers or jobs, some are left out and counted. Without a terminal it prints plain frames.
    """
    chosen = [names.check(name, patterns=True) for name in names.split(queues)]
    rates = Rates()

    def read(with_failed: bool) -> Reading:
        return gather(cli, chosen, rates, with_failed)

    if as_json:
        echo(json.dumps(top_render.document(read(True))))
    elif sys.stdout.isatty():
        _watch(read, interval, count)
    else:
        _plain(read, interval, count or 1)
    cli.broken()  # each frame shows it


def gather(cli: Cli, chosen: list[str], rates: Rates, with_failed: bool = False) -> Reading:
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
        failed=failed,
        broken=tuple(cli.broken()),
    )


def _plain(read: Callable[[bool], Reading], interval: float, count: int) -> None:
    for number in range(count):
        if number:
            time.sleep(interval)
        echo(top_render.text(read(False), width=None, height=None) + ("\n" if number < count - 1 else ""))


class _Look:
    """A reading in its own thread, so that `q` works even if Redis hangs."""

    def __init__(self, read: Callable[[bool], Reading], with_failed: bool) -> None:
        self._read, self._with_failed = read, with_failed
        self.found: Reading | None = None
        self.error: Exception | None = None
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self.found = self._read(self._with_failed)
        except Exception as error:
            self.error = error

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()


def _watch(read: Callable[[bool], Reading], interval: float, count: int | None) -> None:
    reading = read(False)  # an error of the first reading is reported like that of any command
    state = _State(interval)
    with screen.alternate_screen(), screen.TypedKeys().raw() as keys:
        look: _Look | None = None
        due, shown = time.monotonic() + interval, 1
        while True:
            screen.draw(
                top_render.text(reading, width=room(), height=get_terminal_size().lines - 2, failures=state.failures),
                state.line(),
            )
            if count is not None and shown >= count and look is None:
                return
            wait = 0.05 if look else 3600.0 if state.frozen else due - time.monotonic()
            for key in keys.wait(wait):
                if key in "qQ":
                    return
                due = state.press(key, due)
            if look is not None and look.over:
                reading, shown = _taken(look, reading, state), shown + 1
                look, due = None, max(due, time.monotonic() + interval) if not state.again else time.monotonic()
            if look is None and (state.again or (not state.frozen and time.monotonic() >= due)):
                look, state.again = _Look(read, state.failures), False


def _taken(look: _Look, before: Reading, state: _State) -> Reading:
    if look.error is not None:
        state.trouble = screen.in_words(look.error)
        return before
    assert look.found is not None
    state.trouble = ""
    if state.failures and look.found.failed is None:
        return replace(look.found, failed=before.failed)
    return look.found


@dataclass
class _State:
    """The state that keys change."""

    interval: float
    frozen: bool = False
    failures: bool = False
    again: bool = False
    trouble: str = ""

    def press(self, key: str, due: float) -> float:
        """Apply a key; return the time of the next reading."""
        if key in "pP":
            self.frozen = not self.frozen
            return time.monotonic()
        if key in "fF":
            self.failures = not self.failures
            self.again = self.failures
        elif key in "rR":
            self.again = True
        return due

    def line(self) -> str:
        """Return the last line of the screen."""
        if self.trouble:
            return self.trouble
        texts = {**_HELP, "p": "go on" if self.frozen else _HELP["p"], "f": "workers" if self.failures else _HELP["f"]}
        state = "frozen" if self.frozen else f"every {self.interval:g} s"
        return "  ".join(f"{key} {text}" for key, text in texts.items()) + f"   {state}"
