"""The frames of `top`: pure functions of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fusion.cli import marks
from fusion.cli.context import seconds
from fusion.cli.output import inverse, shown, styled
from fusion.cli.stats_render import sparkline
from fusion.cli.tables import cells as columns_of
from fusion.cli.tables import cut, table_of
from fusion.cli.times import here, told
from fusion.kernel.redaction import masked_text
from fusion.kernel.timeutil import to_iso
from fusion.views.base import EVERYONE, age, to_json
from fusion.views.job import LastFailedView, RunningJobView
from fusion.views.queue import FlowView, QueueListedView, QueueStatsView
from fusion.views.worker import UNLOADED, WorkerView

if TYPE_CHECKING:
    from fusion.jobs.moment import FailedJob, RunningJob
    from fusion.store.read.inspector import QueueInfo, Totals, WorkerInfo
    from fusion.store.read.totals import Counters, Step

SCHEMA = 1
#: The share of its timeout from which a running job is coloured.
_LONG = 0.8
#: The columns of the tables of queues, workers and running jobs.
_QUEUE = ["name", "by_priority.high", "by_priority.moderate", "by_priority.low", "oldest_age", "active_count"]
_QUEUE += ["per_minute.came", "per_minute.went", "per_minute.failed"]
_WORKER = ("name", "state", "jobs", "queues", "heartbeat_age", "successful_jobs", "failed_jobs")
_JOB = ("function", "id", "seconds", "queue", "progress_percent", "attempt", "worker")
_FAILED = ("function", "id", "error", "error_frame", "queue", "at")
#: Terminals of fewer columns show these alone: the rest would leave no room for what a job does.
_NARROW = 80
_NARROW_JOB, _NARROW_FAILED = ("function", "id", "seconds", "queue"), ("function", "id", "error", "at")
_NARROW_WORKER = ("name", "state", "jobs", "heartbeat_age", "failed_jobs")
#: Columns of a short id, and of a description behind a function.
_ID, _ABOUT = 10, 60
#: Minutes of the graph, at most; columns of its labels, and of the figures behind it.
MINUTES = 60
_LABEL, _FIGURES = 9, 22
#: Lines of the screen from which there is a graph, and from which it has all its lines.
_GRAPH, _WHOLE_GRAPH = 18, 30
_WORSE = {"dead": "red", UNLOADED: "red", "suspended": "yellow", "quiet": "yellow", "throttled": "yellow"}


@dataclass(frozen=True)
class Throughput:
    """Jobs per minute of a queue; None before there are two readings."""

    came: float | None = None
    went: float | None = None
    failed: float | None = None


@dataclass(frozen=True)
class Reading:
    """The data of one frame. `queue_count` and `worker_count` count all queues and workers."""

    at: datetime
    where: str
    totals: Totals
    queues: tuple[QueueInfo, ...]
    queue_count: int
    workers: tuple[WorkerInfo, ...]
    worker_count: int
    jobs: tuple[RunningJob, ...]
    held: int
    counters: Mapping[str, Counters]
    rates: Mapping[str, Throughput]
    minutes: tuple[Step, ...] = ()
    failed: tuple[FailedJob, ...] | None = None
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Block:
    """A part of a frame. `chosen`: the line of the chosen job, which stays in sight."""

    lines: list[str]
    chosen: int | None = None

    def first(self, count: int) -> list[str]:
        """Return at most `count` lines: the heading, the first ones or those around the chosen one, and how many there are more."""
        if len(self.lines) <= count:
            return self.lines
        if count < 2:
            return self.lines[:count]
        head, *rest = self.lines
        room = count - 2
        before = 0 if self.chosen is None or not room else max(0, self.chosen - room)
        return [head, *rest[before : before + room], f"... {len(rest) - room} more"]


def jobs_of(reading: Reading, failures: bool) -> list[RunningJob | FailedJob]:
    """Return the jobs of a frame in the order of their lines."""
    return [*((reading.failed or ()) if failures else ()), *reading.jobs]


def title(job: RunningJob | FailedJob, most: int = _ABOUT) -> str:
    """Return what a job does: its function, and its description, masked, if that is another one."""
    about = masked_text(job.about, most) if job.about else ""
    return shown(f"{job.function or '?'} {about}".rstrip())


def short(job_id: str) -> str:
    """Return an id for a line in which it only tells jobs of one function apart."""
    return cut(shown(job_id), _ID)


def text(reading: Reading, *, width: int | None, height: int | None, failures: bool = False, chosen: int | None = None) -> str:
    """Return a frame of at most `height` lines of `width` columns: a summary, a graph of the last minutes, queues, workers or failures, and
    the longest-running jobs. `chosen`: the place of the chosen one in `jobs_of`."""
    head, graph = _head(reading, width), _graph(reading, width, height)
    failed = len(reading.failed or ()) if failures else 0
    below = _marked(_failed(reading, width), chosen, width) if failures else _Block(_workers(reading, width))
    jobs = _marked(_jobs(reading, width), None if chosen is None else chosen - failed, width)
    blocks = [_Block(_queues(reading, width)), below, jobs]
    shown_blocks = [one.lines for one in blocks]
    if height is not None:
        room = max(6, height - len(head) - len(graph) - bool(graph) - 3)
        shares = _shared(room, [len(one.lines) for one in blocks])
        shown_blocks = [one.first(share) for one, share in zip(blocks, shares, strict=True)]
    lines = "\n\n".join("\n".join(block) for block in (head, graph, *shown_blocks) if block).split("\n")
    return "\n".join(line if width is None else cut(line, width) for line in lines)


def _shared(room: int, wanted: list[int]) -> list[int]:
    """Return the number of lines for each block. Lines that one does not need go to the others."""
    given = [0] * len(wanted)
    while room > 0 and any(have < want for have, want in zip(given, wanted, strict=True)):
        for i, want in enumerate(wanted):
            if given[i] < want and room > 0:
                given[i] += 1
                room -= 1
    return given


def _marked(lines: list[str], chosen: int | None, width: int | None) -> _Block:
    """Return a table of jobs as a block whose chosen row is marked, and stands out by its colours. `chosen`: its place among the rows."""
    if width is None:
        return _Block(lines)
    at = None if chosen is None or not 0 <= chosen < len(lines) - 1 else chosen + 1
    marked = [f"> {line}" if i == at else f"  {line}" for i, line in enumerate(lines)]
    if at is not None:
        marked[at] = inverse(marked[at] + " " * max(0, width - columns_of(marked[at])))
    return _Block(marked, at)


def _graph(reading: Reading, width: int | None, height: int | None) -> list[str]:
    """Return what ended, failed and waited in each of the last minutes, the current one last."""
    if not any(step.counts or step.depths for step in reading.minutes) or (height is not None and height < _GRAPH):
        return []
    count = MINUTES if width is None else min(MINUTES, max(10, width - _LABEL - _FIGURES))
    steps = reading.minutes[-count:]
    ended = [step.counts["completed"] + step.counts["failed"] for step in steps]
    failed, waiting = [step.counts["failed"] for step in steps], [sum(step.depths.values()) for step in steps]
    lines = [f"{'ended':{_LABEL}}{sparkline(ended)}  at most {max(ended):,} a minute"]
    if height is None or height >= _WHOLE_GRAPH:
        bars = styled(sparkline(failed), "red" if any(failed) else None)
        lines.append(f"{'failed':{_LABEL}}{bars}  at most {max(failed):,}")
        lines.append(f"{'waiting':{_LABEL}}{sparkline(waiting)}  at most {max(waiting):,}")
    lines.append(f"{'':{_LABEL}}{f'{here(steps[0].at):%H:%M}':<{len(steps) - 5}}{here(steps[-1].at):%H:%M}")
    return lines


def _head(reading: Reading, width: int | None) -> list[str]:
    totals, queues = reading.totals, reading.queues
    oldest = max((waited for queue in queues if (waited := age(reading.at, queue.oldest)) is not None), default=None)
    rates = reading.rates.values()
    parts = [
        f"{sum(queue.count for queue in queues)} waiting (oldest {marks.aged(oldest)})",
        f"{sum(queue.started for queue in queues)} running",
        f"in {marks.rate(_sum(rate.came for rate in rates))}, out {marks.rate(_sum(rate.went for rate in rates))} per min",
    ]
    more = [f"{totals.scheduled} scheduled", marks.alarming(totals.failed, f"{totals.failed} failed")]
    if reading.held:
        more.append(styled(f"{reading.held} held", "yellow"))
    if blocked := sum(queue.blocked for queue in queues) - reading.held:
        more.append(f"{max(0, blocked)} blocked")
    if totals.suspended:
        more.append(styled("suspended: no job is started", "yellow"))
    where = f"{reading.where}  {told(reading.at)}"
    lines = [shown(where), ", ".join(parts), ", ".join(more), *(styled(shown(line), "red") for line in reading.broken)]
    return [line if width is None else cut(line, width) for line in lines]


def _sum(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return sum(found) if found else None


def _queues(reading: Reading, width: int | None) -> list[str]:
    if not reading.queues:
        return ["No job was ever enqueued"]
    cells = marks.QUEUE | {"name": _name}
    listed = [_listed(queue, reading) for queue in _busiest(reading.queues)]
    lines = table_of(QueueListedView, listed, order=_QUEUE, only=True, cells=cells, short=True, within=width)
    left = reading.queue_count - len(reading.queues)
    return [*lines, f"{left} more queues; name those that matter"] if left else lines


def _listed(queue: QueueInfo, reading: Reading) -> QueueListedView:
    rate = reading.rates.get(queue.name)
    return QueueListedView.of(queue, per_minute=None if rate is None else FlowView(**asdict(rate)))


def _name(queue: QueueListedView) -> str:
    colour = "yellow" if queue.paused else "red" if queue.problem else None
    return styled(shown(f"{queue.name} (paused)" if queue.paused else queue.name), colour)


def _busiest(queues: Sequence[QueueInfo]) -> list[QueueInfo]:
    """Return the queues, those with jobs first, each part by name."""
    return sorted(queues, key=lambda queue: (not (queue.count or queue.started or queue.blocked), queue.name))


def _workers(reading: Reading, width: int | None) -> list[str]:
    if not reading.workers:
        return [styled("No worker is alive: nothing runs", "yellow")]
    cells: dict[str, Callable[[WorkerView], str]] = {
        "state": lambda one: styled(one.state, _WORSE.get(one.state)),
        "jobs": lambda one: str(len(one.jobs)),
        "queues": lambda one: ",".join(one.queues),
        "failed_jobs": lambda one: marks.alarming(one.failed_jobs),
    }
    workers = sorted(reading.workers, key=lambda one: (one.alive, not one.jobs, one.name))
    views = [WorkerView.of(one, reading.at) for one in workers]
    lines = table_of(
        WorkerView,
        views,
        order=_fit(width, _WORKER, _NARROW_WORKER),
        only=True,
        cells=cells,
        right=("jobs",),
        short=True,
        within=width,
    )
    left = reading.worker_count - len(reading.workers)
    return [*lines, f"{left} more in the list of workers"] if left > 0 else lines


def _jobs(reading: Reading, width: int | None) -> list[str]:
    if not reading.jobs:
        return []
    cells: dict[str, Callable[[RunningJobView], str]] = {
        "seconds": _runs,
        "attempt": lambda one: str(one.attempt + 1) if one.attempt else "-",
        **_named(reading.jobs, width),
    }
    jobs = [RunningJobView.of(job, reading.at) for job in reading.jobs]
    order = _fit(width, _JOB, _NARROW_JOB)
    return table_of(RunningJobView, jobs, order=order, only=True, cells=cells, short=True, within=_beside_the_mark(width))


def _named(jobs: Sequence[RunningJob | FailedJob], width: int | None) -> dict[str, Callable[[Any], str]]:
    """Return the cells that say what a job is. Programs, without a terminal, get whole ids."""
    titles = {job.id: title(job) for job in jobs}
    return {"function": lambda one: titles[one.id], "id": lambda one: one.id if width is None else short(one.id)}


def _fit(width: int | None, whole: Sequence[str], narrow: Sequence[str]) -> Sequence[str]:
    return whole if width is None or width >= _NARROW - 1 else narrow


def _beside_the_mark(width: int | None) -> int | None:
    return None if width is None else width - 2


def _runs(job: RunningJobView) -> str:
    if job.seconds is None:
        return "-"
    long = job.timeout is not None and 0 < job.timeout * _LONG <= job.seconds
    return styled(seconds(job.seconds), "red" if long else None)


def _failed(reading: Reading, width: int | None) -> list[str]:
    if reading.failed is None:
        return ["reading what failed last"]
    if not reading.failed:
        return ["No failed jobs"]
    cells: dict[str, Callable[[LastFailedView], str]] = {
        "error": lambda one: styled(shown(one.error.removeprefix("builtins.")), None if one.quarantined else "red"),
        **_named(reading.failed, width),
    }
    jobs, order = [LastFailedView.of(job) for job in reading.failed], _fit(width, _FAILED, _NARROW_FAILED)
    within = _beside_the_mark(width)
    return table_of(LastFailedView, jobs, reading.at, order=order, only=True, cells=cells, right=("at",), within=within)


def document(reading: Reading) -> dict[str, Any]:
    """Return the data as JSON, with lifetime counters in place of rates, which need two readings."""
    return {
        "schema": SCHEMA,
        "at": to_iso(reading.at),
        "suspended": reading.totals.suspended,
        "scheduled": reading.totals.scheduled,
        "failed": reading.totals.failed,
        "held": reading.held,
        "queue_count": reading.queue_count,
        "worker_count": reading.worker_count,
        "queues": [to_json(QueueStatsView.counted(queue, reading.counters[queue.name])) for queue in reading.queues],
        "workers": [to_json(WorkerView.of(one, reading.at)) for one in reading.workers],
        "running": [to_json(RunningJobView.of(job, reading.at), EVERYONE) for job in reading.jobs],
        "last_failed": [to_json(LastFailedView.of(job), EVERYONE) for job in reading.failed or ()],
        "broken": list(reading.broken),
    }
