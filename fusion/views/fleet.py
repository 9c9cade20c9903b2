"""The fleet as a whole, as every interface shows it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from fusion.views.base import View, part, public, view
from fusion.views.events import SinkView
from fusion.views.finding import VerdictView
from fusion.views.limit import KeyView
from fusion.views.queue import KeylessView, QueueListedView
from fusion.views.scheduler import SchedulerView
from fusion.views.worker import WorkerView

if TYPE_CHECKING:
    from typing import Self

    from fusion.store.read.blocked import BlockedJobs
    from fusion.store.read.callback_inspector import CallbackCounts
    from fusion.store.read.inspector import CallbackErrors


@part
class BlockedView(View):
    """Jobs that wait for something else than their turn."""

    kind: str = public("`held`: no worker so far could run them; `probation`: they wait for an idle worker.")
    queue: str = public("Their queue.")
    task: str = public("Their function.")
    count: int = public("How many.")
    since: datetime | None = public("Since when.")
    why: str = public("Why, masked.")

    @classmethod
    def of(cls, one: BlockedJobs) -> Self:
        """Make the view."""
        return cls(kind=one.kind, queue=one.queue, task=one.task, count=one.count, since=one.since, why=one.why)


@part
class CallbackErrorsView(View):
    """Python callbacks that raised."""

    count: int = public("How many, ever.")
    job_id: str = public("The job of the last one.")
    at: datetime | None = public("When the last one raised.")

    @classmethod
    def of(cls, errors: CallbackErrors | None) -> Self | None:
        """Make the view; None if there were none."""
        return None if errors is None else cls(count=errors.count, job_id=errors.job_id, at=errors.at)


@part
class CallbackCountsView(View):
    """Counts of callback deliveries."""

    waiting: int = public("Deliveries that wait to be made.")
    gone: int = public("Endpoints that answered 410 and get no more callbacks.")
    refused: int = public("Deliveries ever refused because too many waited.")
    dropped: int = public("Deliveries ever lost because a key in Redis had a wrong type.")

    @classmethod
    def of(cls, counts: CallbackCounts) -> Self:
        """Make the view."""
        return cls(waiting=counts.waiting, gone=counts.gone, refused=counts.refused, dropped=counts.dropped)


@part
class CronCountsView(View):
    """Counts of cron entries."""

    entries: int = public("How many there are.")
    paused: int = public("Of these, paused ones.")
    errors: int = public("Of these, those that can't be planned, or have a wrong declaration.")


@part
class FleetView(View):
    """Facts about the whole fleet. A part that was not requested is null."""

    at: datetime = public("When this was read.")
    verdict: VerdictView | None = public("Whether everything is healthy, and if not, why.")
    suspended: bool = public("Whether no worker starts a job.")
    failed: int = public("Failed jobs that are kept.")
    scheduled: int = public("Jobs that wait for a time.")
    dropped: dict[str, int] = public(
        "Ended jobs that were removed before their TTL was over because there were too many, by state."
    )
    held: int = public("Jobs that no worker so far could run.")
    blocked: list[BlockedView] = public("Jobs that wait for something else than their turn.")
    stuck: list[KeyView] = public("Concurrency keys whose jobs wait while none starts.")
    keyless: list[KeylessView] = public("Functions whose jobs ran without the concurrency key that they declare.")
    callback_errors: CallbackErrorsView | None = public("Python callbacks that raised; null if there were none.")
    callbacks: CallbackCountsView | None = public("Deliveries of callbacks.")
    schedulers: list[SchedulerView] | None = public("Schedulers that are registered.")
    cron: CronCountsView | None = public("Cron entries.")
    broken: list[str] = public("What could not be read.")


@view
class InfoView(FleetView):
    """The part of `info` about the whole fleet."""

    queue_count: int = public("All queues.")
    worker_count: int = public("Workers that are registered.")


@view
class SnapshotView(FleetView):
    """The same with the queues and workers themselves, as `info --json` prints it."""

    queues: list[QueueListedView] | None = public("The requested queues.")
    workers: list[WorkerView] | None = public("The workers that serve them.")
    sinks: list[SinkView] | None = public("Sinks of events.")


@view
class SuspendedView(View):
    """The result of suspending the fleet."""

    suspended: bool = public("True.")
    duration: int | None = public("For how long; null until it is resumed.", unit="seconds")


@view
class FleetResumedView(View):
    """The result of resuming the fleet."""

    suspended: bool = public("False.")
    was: bool = public("Whether it was suspended.")


@view
class HealthView(View):
    """The answer of a process that is alive."""

    status: str = public("`ok`.")


@view
class ReadinessView(View):
    """The readiness of this process for requests."""

    status: str = public("`ok`.")
    verdict: Literal["unknown", "healthy", "strained", "unhealthy"] = public("The health of the fleet.")
