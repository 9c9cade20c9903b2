"""The frames of `top`: pure functions of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fusion.cli import marks
from fusion.cli.context import seconds
from fusion.cli.output import shown, styled
from fusion.cli.tables import cut, table_of
from fusion.cli.times import told
from fusion.kernel.timeutil import to_iso
from fusion.views.base import EVERYONE, age, to_json
from fusion.views.job import LastFailedView, RunningJobView
from fusion.views.queue import FlowView, QueueListedView, QueueStatsView
from fusion.views.worker import UNLOADED, WorkerView

if TYPE_CHECKING:
    from fusion.jobs.moment import FailedJob, RunningJob
    from fusion.store.read.inspector import QueueInfo, Totals, WorkerInfo
    from fusion.store.read.totals import Counters

SCHEMA = 1
#: The share of its timeout from which a running job is coloured.
_LONG = 0.8
#: The columns of the tables of queues, workers and running jobs.
_QUEUE = ["name", "by_priority.high", "by_priority.moderate", "by_priority.low", "oldest_age", "active_count"]
_QUEUE += ["per_minute.came", "per_minute.went", "per_minute.failed"]
_WORKER = ("name", "state", "jobs", "queues", "heartbeat_age", "successful_jobs", "failed_jobs")
_JOB = ("seconds", "queue", "function", "id", "progress_percent", "attempt", "worker")
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
    failed: tuple[FailedJob, ...] | None = None
    broken: tuple[str, ...] = ()


def text(reading: Reading, *, width: int | None, height: int | None, failures: bool = False) -> str:
    """Return a frame of at most `height` lines: a summary, queues, workers or failures, and the longest-running jobs."""
    head = _head(reading, width)
    below = _failed(reading, width) if failures else _workers(reading, width)
    jobs = _jobs(reading, width)
    queues = _queues(reading, width)
    if height is not None:
        room = max(6, height - len(head) - 3)
        shares = _shared(room, [len(queues), len(below), len(jobs)])
        queues, below, jobs = (_first(block, share) for block, share in zip((queues, below, jobs), shares, strict=True))
    return "\n\n".join("\n".join(block) for block in (head, queues, below, jobs) if block)


def _shared(room: int, wanted: list[int]) -> list[int]:
    """Return the number of lines for each block. Lines that one does not need go to the others."""
    given = [0] * len(wanted)
    while room > 0 and any(have < want for have, want in zip(given, wanted, strict=True)):
        for i, want in enumerate(wanted):
            if given[i] < want and room > 0:
                given[i] += 1
                room -= 1
    return given


def _first(block: list[str], lines: int) -> list[str]:
    if len(block) <= lines:
        return block
    return [*block[: lines - 1], f"... {len(block) - lines + 1} more"] if lines > 1 else block[:lines]


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
    lines = table_of(WorkerView, views, order=_WORKER, only=True, cells=cells, right=("jobs",), short=True, within=width)
    left = reading.worker_count - len(reading.workers)
    return [*lines, f"{left} more in the list of workers"] if left > 0 else lines


def _jobs(reading: Reading, width: int | None) -> list[str]:
    if not reading.jobs:
        return []
    cells: dict[str, Callable[[RunningJobView], str]] = {
        "seconds": _runs,
        "function": lambda one: one.function or "?",
        "attempt": lambda one: str(one.attempt + 1) if one.attempt else "-",
    }
    jobs = [RunningJobView.of(job, reading.at) for job in reading.jobs]
    return table_of(RunningJobView, jobs, order=_JOB, only=True, cells=cells, short=True, within=width)


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
        "function": lambda one: one.function or "?",
    }
    jobs = [LastFailedView.of(job) for job in reading.failed]
    return table_of(LastFailedView, jobs, reading.at, cells=cells, right=("at",), within=width)


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
