"""The output of `info` as text or JSON: pure functions of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from fusion.cli import bounds, marks
from fusion.cli.context import seconds
from fusion.cli.output import shown, styled
from fusion.cli.tables import folded, room, table_of
from fusion.kernel.program import WRITTEN
from fusion.views.worker import UNLOADED, WorkerView, state_of

if TYPE_CHECKING:
    from fusion.doctor.verdict import Verdict
    from fusion.jobs.moment import RunningJob
    from fusion.store.read.blocked import BlockedJobs
    from fusion.store.read.callback_inspector import CallbackCounts
    from fusion.store.read.cron_inspector import SchedulerInfo
    from fusion.store.read.event_inspector import SinkInfo
    from fusion.store.read.inspector import QueueInfo, Totals, WorkerInfo
    from fusion.store.read.limit_inspector import LimitInfo
    from fusion.views.fleet import SnapshotView
    from fusion.views.queue import QueueListedView, QueueView
    from fusion.views.scheduler import SchedulerView

SCHEMA = 1
#: An en dash, which RQ prints for a queue without workers.
_NONE = "\u2013"
_ANY = 1_000_000
#: Most queues that a line of advice names; most functions with a line of advice each.
_NAMED = 5
#: Terminal columns below which the table of queues has short headings; most jobs of workers that run several.
_NARROW, _LISTED = 120, 20
#: The columns of the table of queues that come first.
_QUEUE = ["name", "by_priority.high", "by_priority.moderate", "by_priority.low", "queued_count", "oldest_age", "active_count"]
_QUEUE += ["finished_count", "deferred_count", "per_minute.failed"]
_STATE_COLOURS = {"busy": "red", "idle": "green", "alive": "green", "dead": "red", UNLOADED: "red"}
_STATE_COLOURS |= dict.fromkeys(("suspended", "quiet", "throttled"), "yellow")


@dataclass(frozen=True)
class CronTotals:
    """Counts of cron entries. `errors`: entries that could not be planned, or have a wrong declaration."""

    entries: int = 0
    paused: int = 0
    errors: int = 0


@dataclass(frozen=True)
class Snapshot:
    """The data of one `info`, about the queues `names`. `queues`, `workers`, and `schedulers` with `cron`, are None if not requested."""

    at: datetime
    totals: Totals
    names: tuple[str, ...]
    queues: tuple[QueueInfo, ...] | None
    workers: tuple[WorkerInfo, ...] | None
    #: True if `names` were chosen; False if they are all queues.
    chosen: bool = False
    #: Chosen names that no job was ever enqueued to.
    unseen: tuple[str, ...] = ()
    schedulers: tuple[SchedulerInfo, ...] | None = None
    cron: CronTotals | None = None
    #: What could not be read, in sentences.
    broken: tuple[str, ...] = ()
    blocked: tuple[BlockedJobs, ...] = ()
    #: Concurrency keys whose jobs wait while none starts.
    stuck: tuple[LimitInfo, ...] = ()
    #: For the whole fleet; None if only a part of it was requested.
    verdict: Verdict | None = None
    sinks: tuple[SinkInfo, ...] | None = None
    callbacks: CallbackCounts | None = None
    #: The jobs that have run longest, if a worker runs several.
    running: tuple[RunningJob, ...] = ()

    @property
    def scheduler_alive(self) -> bool | None:
        """True if a scheduler is alive; None if schedulers were not read."""
        return None if self.schedulers is None else any(scheduler.alive for scheduler in self.schedulers)


def serves(worker: WorkerInfo, queue: str) -> bool:
    """Return True if the worker takes jobs of `queue`: one of its names or wildcards matches it."""
    return not worker.probation and any(fnmatchcase(queue, name) for name in worker.queues)


# -- for people


def text(snapshot: Snapshot, *, by_queue: bool = False, program: str = WRITTEN) -> str:
    """Return the tables, sentences about problems, and RQ's summary as the last line."""
    blocks: list[list[str]] = []
    if snapshot.queues is not None:
        blocks.append(_queues(snapshot))
    if snapshot.workers is not None:
        blocks.append(_workers_by_queue(snapshot) if by_queue else _workers(snapshot))
    blocks.append(_running(snapshot))
    blocks.append(_schedulers(snapshot))
    blocks.append([line for remark in _remarks(snapshot, program) for line in folded(remark, 2)])
    if snapshot.verdict is not None:
        blocks.append(folded(bounds.verdict(snapshot.verdict, program), 2))
    blocks.append(_summary(snapshot))
    return "\n\n".join("\n".join(shown(line, _ANY) for line in block) for block in blocks if block)


def _queues(snapshot: Snapshot) -> list[str]:
    if not snapshot.queues:
        return []
    from fusion.views.queue import QueueListedView

    cells = marks.QUEUE | {"name": _name}
    short = (columns := room()) is not None and columns < _NARROW
    return table_of(QueueListedView, _listed(snapshot), order=_QUEUE, without=("queue_length",), cells=cells, short=short)


def _listed(snapshot: Snapshot) -> list[QueueListedView]:
    from fusion.views.queue import QueueListedView, flow_of

    return [QueueListedView.of(one, per_minute=flow_of(one.flow)) for one in snapshot.queues or ()]


def _name(one: QueueView) -> str:
    return f"{one.name} (paused)" if one.paused else f"{one.name} (rate-limited)" if one.rate_limited else one.name


def _workers(snapshot: Snapshot) -> list[str]:
    if not snapshot.workers:
        return []
    cells: dict[str, Callable[[WorkerView], str]] = {
        "state": lambda one: _coloured(one.state),
        "current_job": lambda one: (one.current_job or "-") + (f" (+{len(one.jobs) - 1})" if len(one.jobs) > 1 else ""),
        "heartbeat_age": _beat,
    }
    workers = [WorkerView.of(worker, snapshot.at) for worker in snapshot.workers]
    return table_of(WorkerView, workers, order=("name", "state", "current_job"), without=("jobs",), cells=cells)


def _beat(one: WorkerView | SchedulerView) -> str:
    return "-" if one.heartbeat_age is None else f"{seconds(one.heartbeat_age)} ago"


def _running(snapshot: Snapshot) -> list[str]:
    """Return a line for each job of workers that run several; other jobs are shown in their worker's line."""
    if not snapshot.running:
        return []
    from fusion.views.job import RunningJobView

    jobs = [RunningJobView.of(job, snapshot.at) for job in snapshot.running[:_LISTED]]
    left = len(snapshot.running) - len(jobs)
    cells: dict[str, Callable[[RunningJobView], str]] = {"function": lambda one: one.function or "?"}
    lines = table_of(
        RunningJobView, jobs, order=("worker", "function", "id"), without=("progress_percent", "attempt"), cells=cells
    )
    return [*lines, *([f"... and {left} more"] if left else [])]


def _workers_by_queue(snapshot: Snapshot) -> list[str]:
    """Return the workers of each queue, like RQ's `-R`."""
    width = max(map(len, snapshot.names), default=0) + 1
    lines = []
    for name in snapshot.names:
        there = [f"{w.name} ({_coloured(state_of(w))})" for w in snapshot.workers or () if serves(w, name)]
        lines.append(f"{name + ':':<{width}} {', '.join(there) or _NONE}")
    return lines


def _schedulers(snapshot: Snapshot) -> list[str]:
    if not snapshot.schedulers:
        return []
    from fusion.views.scheduler import SchedulerView

    cells: dict[str, Callable[[SchedulerView], str]] = {
        "alive": lambda one: _coloured("alive" if one.alive else "dead"),
        "pid": lambda one: f"{one.pid}@{one.hostname}",
        "app": lambda one: f"{one.app} {one.version}",
        "heartbeat_age": _beat,
    }
    shown = [SchedulerView.of(one, snapshot.at) for one in snapshot.schedulers]
    return table_of(SchedulerView, shown, cells=cells, left=("pid",))


def _coloured(state: str) -> str:
    return styled(state, fg=_STATE_COLOURS.get(state))


def _remarks(snapshot: Snapshot, program: str) -> list[str]:
    from fusion.store.read.blocked import in_words

    lines = [styled(line, fg="red") for line in snapshot.broken]
    totals = snapshot.totals
    if totals.failed and snapshot.queues is not None:
        lines.append(styled(f"{totals.failed} failed, of all queues; to see why: {program} failures", fg="red"))
    if totals.scheduled and snapshot.queues is not None:
        lines.append(f"{totals.scheduled} scheduled, of all queues{_who_moves_them(snapshot)}")
    lines += [styled(in_words(one), fg="yellow") for one in snapshot.blocked]
    lines += bounds.of_keys(snapshot.queues or (), snapshot.blocked, program)
    lines += [styled(bounds.stuck(one, program), fg="yellow") for one in snapshot.stuck]
    if totals.dropped and snapshot.queues is not None:
        counts = ", ".join(f"{count} {state}" for state, count in totals.dropped.items())
        lines.append(
            f"Dropped before their time, as there were too many: {counts} (settings failed_max, finished_max, canceled_max)"
        )
    if totals.callback_errors and snapshot.queues is not None:
        lines.append(styled(bounds.raised(totals.callback_errors, snapshot.at), fg="yellow"))
    if snapshot.queues is not None:
        lines += [styled(bounds.keyless(one, snapshot.at), fg="yellow") for one in totals.keyless[:_NAMED]]
    lines += bounds.deliveries(snapshot.sinks or (), snapshot.callbacks, program)
    if totals.suspended:
        lines.append(styled(f"Suspended: no new job is started until {program} resume", fg="yellow"))
    for queue in snapshot.queues or ():
        if queue.rq:
            why = f"{queue.rq} jobs of stock RQ wait in the queue {queue.name}, which RQ's producers write to: they are RQ's"
            lines.append(f"{why}; to run them here, too: {program} worker {queue.name} --adopt-rq {queue.name}")
        lines += [styled(line, fg="yellow") for line in bounds.remarks(queue, snapshot.at, program)]
        if queue.error:
            lines.append(styled(f"The queue {queue.name} can't be read: {queue.error}", fg="red"))
    if bounded := [queue.name for queue in snapshot.queues or () if queue.bounds.bounded]:
        more = ", ..." if len(bounded) > _NAMED else ""
        lines.append(f"Bounds are set for {', '.join(bounded[:_NAMED])}{more}; to see these: {program} queue show")
    if snapshot.unseen:
        lines.append(f"No job was ever enqueued to: {', '.join(snapshot.unseen)}")
    if snapshot.workers is not None:
        lines += _worker_remarks(snapshot, snapshot.workers, program)
    return lines + _cron_remarks(snapshot, program)


def _who_moves_them(snapshot: Snapshot) -> str:
    """Return a note that workers move due jobs too, so that nobody starts a scheduler just for these."""
    by_workers = snapshot.scheduler_alive is False and any(worker.alive for worker in snapshot.workers or ())
    return "; no scheduler is alive, workers queue them when they are due" if by_workers else ""


def _cron_remarks(snapshot: Snapshot, program: str) -> list[str]:
    if snapshot.cron is None:
        return []
    cron, lines = snapshot.cron, []
    dead = sum(not one.alive for one in snapshot.schedulers or ())
    if dead:
        lines.append(f"{dead} dead schedulers: a live one does their work and removes them")
    if cron.entries and not snapshot.scheduler_alive:
        what = f"No scheduler is alive: {cron.entries} cron entries wait."
        lines.append(styled(f"{what} Start one: {program} scheduler", fg="yellow"))
    if cron.errors:
        lines.append(styled(f"{cron.errors} cron entries in error; to see why: {program} cron list", fg="yellow"))
    return lines


def _worker_remarks(snapshot: Snapshot, workers: tuple[WorkerInfo, ...], program: str) -> list[str]:
    alive = [worker for worker in workers if worker.alive and not worker.is_courier]
    dead = sum(not worker.alive for worker in workers)
    lines = [f"{dead} dead: a live worker gives their jobs back and removes them"] if dead else []
    throttled = [f"{worker.name} ({worker.throttled})" for worker in alive if worker.throttled]
    if throttled:
        lines.append(styled(f"Memory is scarce, no job is taken by: {', '.join(throttled)}", fg="yellow"))
    for worker in alive:
        if worker.unloaded:
            waits = [q.name for q in snapshot.queues or () if q.count and serves(worker, q.name)]
            told = f"; jobs wait in {', '.join(waits[:_NAMED])}{' and more' * (len(waits) > _NAMED)}" if waits else ""
            lines.append(styled(f"{worker.name} can't load tasks: {worker.unloaded}{told}", fg="red"))
    if not alive and snapshot.chosen:
        lines.append(styled(f"No live worker serves these. Start one: {program} worker {' '.join(snapshot.names)}", fg="yellow"))
    elif not alive:
        due = ", and no scheduled job becomes due" if snapshot.scheduler_alive is False else ""
        what = f"No worker is alive: nothing runs{due}."
        # Not `all`: on a shared Redis it may include queues of other programs.
        served = [queue.name for queue in snapshot.queues or () if queue.count][:_NAMED] or list(snapshot.names[:_NAMED])
        lines.append(styled(f"{what} Start one: {program} worker {' '.join(served)}".rstrip(), fg="yellow"))
    else:
        waiting = [q.name for q in snapshot.queues or () if q.count or any(one.queue == q.name for one in snapshot.blocked)]
        left = [name for name in waiting if not any(serves(worker, name) for worker in alive)]
        if left:
            lines.append(styled(f"Jobs wait, but no live worker serves: {', '.join(left)}", fg="yellow"))
    return lines


def _summary(snapshot: Snapshot) -> list[str]:
    lines = []
    if snapshot.workers is not None:
        lines.append(f"{len(snapshot.workers)} workers, {len(snapshot.names)} queues")
    if snapshot.queues is not None:
        lines.append(f"{len(snapshot.names)} queues, {sum(queue.count for queue in snapshot.queues)} jobs total")
    return lines


# -- for scripts


def raw(snapshot: Snapshot, *, by_queue: bool = False) -> str:
    """Return RQ's lines. Failed jobs form one queue of their own here, so each queue's own figure is 0."""
    lines = [
        f"queue {queue.name} {queue.count}, {queue.started} executing, {queue.finished} finished, 0 failed"
        for queue in snapshot.queues or ()
    ]
    if snapshot.queues is not None and not snapshot.chosen:
        failed = snapshot.totals.failed
        lines.append(f"queue failed {failed}, 0 executing, 0 finished, {failed} failed")
    if by_queue:
        return "\n".join(shown(line, _ANY) for line in lines + _workers_by_queue(snapshot))
    for worker in snapshot.workers or ():
        # RQ prints the worker's address here; Fusion does not store it.
        where = f"{worker.name} ({worker.hostname} unknown {worker.pid})"
        counts = f"jobs: {worker.successful_jobs} finished, {worker.failed_jobs} failed"
        lines.append(f"worker {where} {state_of(worker)} {', '.join(worker.queues)}. {counts}")
    return "\n".join(shown(line, _ANY) for line in lines)


def view(snapshot: Snapshot) -> SnapshotView:
    """Return the view of all data; a part that was not requested is None."""
    from fusion.views.events import SinkView
    from fusion.views.finding import VerdictView
    from fusion.views.fleet import BlockedView, CallbackCountsView, CallbackErrorsView, CronCountsView, SnapshotView
    from fusion.views.limit import KeyView
    from fusion.views.queue import KeylessView
    from fusion.views.scheduler import SchedulerView
    from fusion.views.worker import WorkerView

    totals, at, queues, cron = snapshot.totals, snapshot.at, snapshot.queues, snapshot.cron
    return SnapshotView(
        at=at,
        suspended=totals.suspended,
        failed=totals.failed,
        scheduled=totals.scheduled,
        dropped=totals.dropped,
        callback_errors=CallbackErrorsView.of(totals.callback_errors),
        keyless=[KeylessView.of(one) for one in totals.keyless],
        broken=list(snapshot.broken),
        verdict=VerdictView.of(snapshot.verdict) if snapshot.verdict else None,
        blocked=[BlockedView.of(one) for one in snapshot.blocked],
        stuck=[KeyView.of(one) for one in snapshot.stuck],
        held=sum(one.count for one in snapshot.blocked if one.kind == "held"),
        sinks=None if snapshot.sinks is None else [SinkView.of(one) for one in snapshot.sinks],
        callbacks=CallbackCountsView.of(snapshot.callbacks) if snapshot.callbacks else None,
        queues=None if queues is None else _listed(snapshot),
        workers=None if snapshot.workers is None else [WorkerView.of(one, at) for one in snapshot.workers],
        schedulers=None if snapshot.schedulers is None else [SchedulerView.of(one, at) for one in snapshot.schedulers],
        cron=None if cron is None else CronCountsView(entries=cron.entries, paused=cron.paused, errors=cron.errors),
    )


def document(snapshot: Snapshot) -> dict[str, Any]:
    """Return one JSON document; a part that was not requested is null."""
    from fusion.views.base import EVERYONE, to_json

    return {"schema": SCHEMA, **to_json(view(snapshot), EVERYONE)}
