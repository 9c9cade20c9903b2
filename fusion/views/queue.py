"""A queue, as every interface shows it, in four sizes: plain, in a list, with its history, with its lifetime counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fusion.views.base import ABSENT, View, age, part, public, view

if TYPE_CHECKING:
    from typing import Self

    from fusion.store.layout.pauses import QueuePause
    from fusion.store.read.inspector import Keyless
    from fusion.store.read.queue_inspector import Flow, QueueInfo
    from fusion.store.read.totals import Counters, QueueStats, Step

#: The classes of priority, from the lowest.
CLASSES = ("low", "moderate", "high")


@part
class PauseView(View):
    """The pause of a queue or of a key."""

    since: datetime | None = public("When it was paused.")
    until: datetime | None = public("When it ends by itself; null for never.")
    by: str | None = public("Who paused it.")
    reason: str | None = public("The reason that they gave.")

    @classmethod
    def of(cls, pause: QueuePause, at: datetime) -> Self:
        """Make the view of a pause as it is at this time."""
        until = None if pause.left is None else at + timedelta(seconds=pause.left)
        return cls(since=pause.since, until=until, by=pause.by or None, reason=pause.reason or None)


@part
class FlowView(View):
    """The throughput of a queue, in jobs a minute."""

    came: float = public("Jobs that came in.", unit="jobs a minute", column="IN/M")
    went: float = public("Jobs that ended in any way.", unit="jobs a minute", column="OUT/M")
    failed: float = public("Of these, jobs that failed.", unit="jobs a minute", column="FAILED/M", short="FAIL/M")


@part
class CountsView(View):
    """Waiting jobs of each class of priority."""

    high: int = public("Priority 2 and above.", column="HIGH")
    moderate: int = public("Priority 1.", column="MODERATE", short="MOD")
    low: int = public("Priority 0.", column="LOW")


@part
class OldestView(View):
    """The times at which the first job of each class of priority was enqueued."""

    high: datetime | None = public("Priority 2 and above.")
    moderate: datetime | None = public("Priority 1.")
    low: datetime | None = public("Priority 0.")


@view
class QueueView(View):
    """A queue at one moment."""

    name: str = public("Its name.", column="QUEUE")
    queue_length: int = public("Jobs that wait in it, blocked ones included.", column="WAITING")
    queued_count: int = public("Of these, jobs that only wait for their turn.", column="TOTAL", short="ALL")
    blocked_count: int = public("Of these, jobs that wait for something else: a slot of their key, a worker that can run them.")
    active_count: int = public("Jobs that run.", column="STARTED", short="RUN")
    by_priority: CountsView = public("Jobs that wait for their turn, by class of priority; without those in the inbox.")
    inbox: int = public("Jobs in its LIST that no worker has read yet.")
    oldest_enqueued_at: datetime | None = public("When the job was enqueued that has waited longest.")
    oldest_age: float | None = public("How long that job has waited.", unit="seconds", column="OLDEST")
    oldest_by_priority: OldestView = public("The same for each class of priority.")
    finished_count: int = public("Finished jobs that are kept.", column="FINISHED", short="DONE")
    deferred_count: int = public("Jobs that wait for other jobs.", column="DEFERRED", short="DEF")
    canceled_count: int = public("Canceled jobs that are kept.")
    stopped_count: int = public("Stopped jobs that are kept.")
    rq_count: int | None = public("Jobs of stock RQ in a LIST of the same key; null if there is no such LIST.")
    paused: bool = public("Whether none of its jobs is started.")
    pause: PauseView | None = public("Details of the pause.")
    max_concurrent: int | None = public("How many of its jobs may run at once; null for any number.")
    rate: str | None = public("How many of its jobs may start in a time, like `100/60s`.")
    burst: int | None = public("How many of these may start at once after an idle time.")
    rate_limited: bool = public("Whether its jobs wait for its rate now, or for a task that holds it back.")
    held_back_until: datetime | None = public("Until when a task holds it back.")
    max_wait: float | None = public("How long a job may wait before it comes before those of higher priority.", unit="seconds")
    max_queue_length: int | None = public("How many jobs may wait in it; null: the producer's settings decide.")
    queue_timeout: float | None = public("After how long a job without a ttl expires.", unit="seconds")
    problem: str | None = public("What is wrong with one of its keys in Redis.")
    last_updated: datetime = public("When this was read, by Redis's clock.")

    @classmethod
    def of(cls, info: QueueInfo, **more: Any) -> Self:
        """Make the view of a queue. `more`: the fields of a larger view."""
        bounds, low_to_high, at = info.bounds, info.heads, info.at
        return cls(
            name=info.name,
            queue_length=info.length,
            queued_count=info.count,
            blocked_count=info.blocked,
            active_count=info.started,
            by_priority=CountsView(high=info.high, moderate=info.moderate, low=info.low),
            inbox=info.inbox,
            oldest_enqueued_at=info.oldest,
            oldest_age=age(at, info.oldest),
            oldest_by_priority=OldestView(**dict(zip(CLASSES, low_to_high, strict=True))),
            finished_count=info.finished,
            deferred_count=info.deferred,
            canceled_count=info.canceled,
            stopped_count=info.stopped,
            rq_count=info.rq,
            paused=info.paused,
            pause=PauseView.of(info.pause, at) if info.pause else None,
            max_concurrent=bounds.limit,
            rate=str(bounds.rate) if bounds.rate else None,
            burst=bounds.rate.burst if bounds.rate else None,
            rate_limited=bounds.closed,
            held_back_until=bounds.held_back,
            max_wait=bounds.max_wait,
            max_queue_length=bounds.max_length,
            queue_timeout=bounds.timeout,
            problem=info.error or None,
            last_updated=at,
            **more,
        )


def flow_of(flow: Flow | None) -> FlowView | None:
    """Make the view of how fast a queue moves; None if no worker has measured it recently."""
    return FlowView(came=flow.came, went=flow.went, failed=flow.failed) if flow else None


@view
class QueueListedView(QueueView):
    """A queue as lists show it."""

    per_minute: FlowView | None = public("How fast it moves; null where no worker has looked of late.")
    depths: list[int | None] = public("The most jobs that waited in each step, the newest last.", default=ABSENT)


# -- outcomes of jobs


@part
class TotalsView(View):
    """Lifetime counters."""

    total_enqueued: int = public("Jobs that came in, ever.", column="ENQUEUED")
    total_requeued: int = public("Ended jobs that were put back, and further runs of repeated ones, ever.")
    total_completed: int = public("Jobs that finished, ever.", column="COMPLETED")
    total_failed: int = public("Jobs that failed, ever.", column="FAILED")
    total_expired: int = public("Jobs that expired before they started, ever.")
    total_discarded: int = public("Jobs that were dropped, ever.")
    total_canceled: int = public("Jobs that were canceled, ever.")
    total_stopped: int = public("Jobs that were stopped, ever.")
    total_deleted: int = public("Jobs that were deleted, ever.")


def totals_of(counters: Counters) -> dict[str, int]:
    """Take the fields of `TotalsView` from counters."""
    return {one.attribute: counters.totals[one.attribute.removeprefix("total_")] for one in TotalsView.FIELDS}


@part
class WaitingView(View):
    """The samples of the waiting jobs of a class of priority."""

    depth: int = public("The most jobs that waited.")
    oldest: int = public("The longest time that a job had waited.", unit="seconds")


@part
class HistoryStepView(View):
    """A minute or an hour."""

    at: datetime = public("When it began.")
    completed: int = public("Jobs that finished in it.")
    failed: int = public("Jobs that failed in it.")
    retried: int = public("Runs in it that failed and are tried again.")
    waiting: dict[str, WaitingView] = public("By class of priority, as far as anything waited.")
    wait_p95: dict[str, float] = public(
        "The longest wait of 95 % of the jobs that ended in it, by class of priority.", unit="seconds"
    )
    run_p95: dict[str, float] = public("The longest run of 95 % of them, by class of priority.", unit="seconds")

    @classmethod
    def of(cls, step: Step) -> Self:
        """Make the view of a step."""
        from fusion.store.layout.history import percentile

        waits, runs = (
            {CLASSES[one]: at for one, counts in sorted(times.items())[::-1] if (at := percentile(counts, 0.95)) is not None}
            for times in (step.waits, step.runs)
        )
        waiting = {CLASSES[one]: WaitingView(depth=step.depths[one], oldest=step.ages[one]) for one in sorted(step.depths)[::-1]}
        counts = step.counts
        return cls(
            at=step.at,
            completed=counts["completed"],
            failed=counts["failed"],
            retried=counts["retried"],
            waiting=waiting,
            wait_p95=waits,
            run_p95=runs,
        )


@part
class QuantilesView(View):
    """Percentiles of a duration of jobs."""

    p50: float | None = public("Half of them took at most this long.", unit="seconds")
    p95: float | None = public("95 % took at most this long.", unit="seconds")
    p99: float | None = public("99 % took at most this long.", unit="seconds")

    @classmethod
    def counted(cls, counts: Sequence[int]) -> Self:
        """Make the view of durations that are counted in ranges."""
        from fusion.store.layout.history import percentile

        return cls(**{f"p{share}": percentile(counts, share / 100) for share in (50, 95, 99)})


@part
class SecondsView(View):
    """The times that ended jobs of a class of priority had waited, and ran."""

    wait: QuantilesView = public("From when they were queued to when they started.", default=ABSENT)
    run: QuantilesView = public("From when they started to when they ended.", default=ABSENT)


def seconds_of(steps: list[Step]) -> dict[str, SecondsView]:
    """Sum up how long jobs waited and ran, by class of priority."""
    from fusion.store.read.totals import summary

    return {
        CLASSES[priority]: SecondsView(**{what: QuantilesView(**shares) for what, shares in times.items()})
        for priority, times in summary(steps).items()
    }


def summed(tables: Iterable[Mapping[int, Sequence[int]]]) -> list[int]:
    """Add up the counts of all classes."""
    rows = [counts for table in tables for counts in table.values()]
    return [sum(column) for column in zip(*rows, strict=True)]


def most_of(hours: Iterable[Step]) -> dict[str, Any]:
    """Take the most of a run from hours, as `FunctionMostView` has it. Of equal figures the last one counts."""
    runs, peaks = [], []
    for hour in hours:
        if (run := hour.slowest_run) is not None:
            runs.append((run, hour.at))
        if hour.peak is not None:
            peaks.append((hour.peak, hour.at))
    (run, ran), (peak, held) = max(runs, default=(None, None)), max(peaks, default=(None, None))
    return {"slowest_run": run, "slowest_run_at": ran, "peak_memory": peak, "peak_memory_at": held}


def history_of(steps: Iterable[Step], *, whole: bool = False) -> list[HistoryStepView]:
    """Make the views of the steps with any activity, or of all steps if `whole`."""
    return [HistoryStepView.of(step) for step in steps if whole or step.counts or step.depths]


@view
class QueueNowView(QueueView):
    """A queue with its history."""

    per_minute: FlowView | None = public("How fast it moves; null where no worker has looked of late.")
    history: list[HistoryStepView] = public("Steps in which something was, the oldest first.")
    seconds: dict[str, SecondsView] = public("Percentiles over all these steps, by class of priority.")


@view
class QueueStatsView(QueueView, TotalsView):
    """A queue with its lifetime counters."""

    totals_by_priority: dict[str, dict[str, int]] = public("The same counters by class of priority, those over 0.")
    history: list[HistoryStepView] = public("Steps in which something was, the oldest first.", default=ABSENT)
    seconds: dict[str, SecondsView] = public("Percentiles over all these steps, by class of priority.", default=ABSENT)

    @classmethod
    def of_stats(cls, stats: QueueStats, steps: list[Step] | None = None, *, whole: bool = False) -> Self:
        """Make the view of a queue and of the requested steps."""
        return cls.counted(stats.info, stats.counters, steps, whole=whole)

    @classmethod
    def counted(cls, info: QueueInfo, counters: Counters, steps: list[Step] | None = None, *, whole: bool = False) -> Self:
        """Make the view of a queue and its counters."""
        return cls.of(
            info,
            **totals_of(counters),
            totals_by_priority={CLASSES[one]: dict(counts) for one, counts in sorted(counters.by_priority.items())},
            history=ABSENT if steps is None else history_of(steps, whole=whole),
            seconds=ABSENT if steps is None else seconds_of(steps),
        )


@part
class FunctionMostView(View):
    """The most that a run of a function took."""

    function: str = public("Its dotted path.", column="FUNCTION")
    slowest_run: float | None = public("The slowest run; null if none ended.", unit="seconds", column="SLOWEST")
    slowest_run_at: datetime | None = public("When the hour of that run began.")
    peak_memory: int | None = public(
        "The most memory that the process of a run held; null if no worker knew it.", unit="bytes", column="PEAK"
    )
    peak_memory_at: datetime | None = public("When the hour of that run began.")


@view
class FunctionStatsView(FunctionMostView):
    """The outcomes of the jobs of a function. The most of a run is of all hours that the steps touch."""

    history: list[HistoryStepView] = public("Steps in which something was, the oldest first.")
    seconds: dict[str, SecondsView] = public("Percentiles over all these steps, by class of priority.")

    @classmethod
    def of(cls, function: str, steps: list[Step], hours: list[Step], *, whole: bool = False) -> Self:
        """Make the view of a function from its steps, and from the hours that these touch."""
        history = history_of(steps, whole=whole)
        return cls(function=function, history=history, seconds=seconds_of(steps), **most_of(hours))


@part
class FunctionListedView(FunctionMostView):
    """The outcomes of the jobs of a function in the last hours, whatever their priority."""

    completed: int = public("Jobs that finished.", column="FINISHED", short="DONE")
    failed: int = public("Jobs that failed.", column="FAILED", short="FAIL")
    retried: int = public("Runs that failed and were tried again.", column="RETRIED", short="RETRY")
    wait: QuantilesView = public("How long the jobs that ended had waited. About: counted in ranges.")
    run: QuantilesView = public("How long they ran. About: counted in ranges.")
    ended: list[int] = public("Jobs that ended in each hour, the last one last.")
    failures: list[int] = public("Of these, failed ones.")

    @classmethod
    def of(cls, function: str, steps: Sequence[Step]) -> Self:
        """Make the view of a function from its steps."""
        waits, runs = summed(step.waits for step in steps), summed(step.runs for step in steps)
        counts = [step.counts for step in steps]
        return cls(
            function=function,
            completed=sum(one["completed"] for one in counts),
            failed=sum(one["failed"] for one in counts),
            retried=sum(one["retried"] for one in counts),
            wait=QuantilesView.counted(waits),
            run=QuantilesView.counted(runs),
            **most_of(steps),
            ended=[one["completed"] + one["failed"] for one in counts],
            failures=[one["failed"] for one in counts],
        )


@view
class FunctionsView(View):
    """A page of functions."""

    functions: list[FunctionListedView] = public("By name.")
    total: int = public("How many have a history of their own.")
    offset: int = public("How many were left out before these.")
    hours: int = public("Of how many hours this is, with the one that is not over.")
    left_out: FunctionListedView | None = public(
        "All other functions together, if there are more than have a history of their own."
    )


@part
class KeylessView(View):
    """Jobs of a function that ran without the concurrency key that it declares."""

    function: str = public("Its dotted path.")
    count: int = public("How many.")
    at: datetime = public("When the last one ran.")

    @classmethod
    def of(cls, one: Keyless) -> Self:
        """Make the view."""
        return cls(function=one.function, count=one.count, at=one.at)


# -- answers


@view
class QueuesView(View):
    """A page of queues."""

    queues: list[QueueListedView] = public("By name.")
    total: int = public("How many there are in all.")
    offset: int = public("How many were left out before these.")
    keyless: list[KeylessView] = public("Functions whose jobs ran without the concurrency key that they declare.")
    broken: list[str] = public("What could not be read.")


@view
class ResumedView(View):
    """A queue that is no longer paused."""

    name: str = public("The queue.")
    paused: bool = public("False.")
    was: PauseView | None = public("The pause that is over; null if there was none.")


@view
class EmptiedView(View):
    """The result of emptying a queue."""

    name: str = public("The queue.")
    deleted: int = public("Jobs that were deleted.")
    kept: int = public("Of these, jobs that the trash keeps.")
    more: bool = public("Whether jobs are left because time ran out.")


# -- all queues together


@part
class WaitP95View(View):
    """For each class of priority, the longest wait of 95 % of the jobs."""

    high: float | None = public("Priority 2 and above.", unit="seconds")
    moderate: float | None = public("Priority 1.", unit="seconds")
    low: float | None = public("Priority 0.", unit="seconds")


@part
class DepthsView(View):
    """For each class of priority, the most jobs that waited at once: the sum over the queues of the most in each."""

    high: int | None = public("Priority 2 and above.")
    moderate: int | None = public("Priority 1.")
    low: int | None = public("Priority 0.")


@part
class FleetStepView(View):
    """A minute or an hour, of all queues."""

    at: datetime = public("When it began.")
    completed: int = public("Jobs that finished in it.")
    failed: int = public("Jobs that failed in it.")
    retried: int = public("Runs in it that failed and are tried again.")
    wait_p95: WaitP95View = public("The longest wait of 95 % of the jobs.")
    waiting: DepthsView = public("Jobs that waited; null where nothing is known of the step.")

    @classmethod
    def of(cls, step: Step) -> Self:
        """Make the view of a step."""
        from fusion.store.layout.history import percentile

        p95 = {name: percentile(step.waits[n], 0.95) if n in step.waits else None for n, name in enumerate(CLASSES)}
        counts, known = step.counts, bool(step.counts or step.depths)
        return cls(
            at=step.at,
            completed=counts["completed"],
            failed=counts["failed"],
            retried=counts["retried"],
            wait_p95=WaitP95View(**p95),
            waiting=DepthsView(**{name: step.depths.get(n, 0) if known else None for n, name in enumerate(CLASSES)}),
        )


@view
class HistoryView(View):
    """The outcomes of the jobs of all queues."""

    queues: int = public("Queues that are added up.")
    of: int = public("Queues that there are.")
    history: list[FleetStepView] = public("All steps, the oldest first.")
    seconds: dict[str, SecondsView] = public("Percentiles over all these steps, by class of priority.")
