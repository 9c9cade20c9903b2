"""What is of all queues together, as all places show it."""

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
    """Jobs that wait for something that their queue can't give them."""

    kind: str = public(
        "`held`: no worker that looked could run them; `probation`: they wait for a worker with nothing else to do."
    )
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
    at: datetime | None = public("When that was.")

    @classmethod
    def of(cls, errors: CallbackErrors | None) -> Self | None:
        """Make the view; None if there were none."""
        return None if errors is None else cls(count=errors.count, job_id=errors.job_id, at=errors.at)


@part
class CallbackCountsView(View):
    """Deliveries of callbacks."""

    waiting: int = public("Deliveries that wait to be made.")
    gone: int = public("Endpoints that answered 410 and get none any more.")
    refused: int = public("Deliveries that were not accepted, as too many waited, ever.")
    dropped: int = public("Deliveries that could not be accepted, as a key was broken, ever.")

    @classmethod
    def of(cls, counts: CallbackCounts) -> Self:
        """Make the view."""
        return cls(waiting=counts.waiting, gone=counts.gone, refused=counts.refused, dropped=counts.dropped)


@part
class CronCountsView(View):
    """All cron entries."""

    entries: int = public("How many there are.")
    paused: int = public("Of these, paused ones.")
    errors: int = public("Of these, those that can't be planned, or are declared with a mistake.")


@part
class FleetView(View):
    """What is of no single queue or worker. A part that was not asked for is null."""

    at: datetime = public("When this was read.")
    verdict: VerdictView | None = public("Whether everything is healthy, and if not, why.")
    suspended: bool = public("Whether no worker starts a job.")
    failed: int = public("Failed jobs that are kept.")
    scheduled: int = public("Jobs that wait for a time.")
    dropped: dict[str, int] = public("Ended jobs that were forgotten before their time, as there were too many, by state.")
    held: int = public("Jobs that no worker that looked could run.")
    blocked: list[BlockedView] = public("Jobs that wait for something that their queue can't give them.")
    stuck: list[KeyView] = public("Concurrency keys whose jobs wait while none starts.")
    keyless: list[KeylessView] = public("Functions whose jobs ran without the concurrency key that they declare.")
    callback_errors: CallbackErrorsView | None = public("Python callbacks that raised; null if there were none.")
    callbacks: CallbackCountsView | None = public("Deliveries of callbacks.")
    schedulers: list[SchedulerView] | None = public("Schedulers that are registered.")
    cron: CronCountsView | None = public("Cron entries.")
    broken: list[str] = public("What could not be read.")


@view
class InfoView(FleetView):
    """What `info` tells that is not of one queue or worker."""

    queue_count: int = public("Queues that there are.")
    worker_count: int = public("Workers that are registered.")


@view
class SnapshotView(FleetView):
    """The same with the queues and workers themselves, as `info --json` prints it."""

    queues: list[QueueListedView] | None = public("The queues that were asked for.")
    workers: list[WorkerView] | None = public("The workers that serve them.")
    sinks: list[SinkView] | None = public("Sinks of events.")


@view
class SuspendedView(View):
    """The fleet, suspended."""

    suspended: bool = public("True.")
    duration: int | None = public("For how long; null until it is resumed.", unit="seconds")


@view
class FleetResumedView(View):
    """The fleet, resumed."""

    suspended: bool = public("False.")
    was: bool = public("Whether it was suspended.")


@view
class HealthView(View):
    """Whether this process answers."""

    status: str = public("`ok`.")


@view
class ReadinessView(View):
    """Whether requests should be sent here."""

    status: str = public("`ok`.")
    verdict: Literal["unknown", "healthy", "strained", "unhealthy"] = public("How the fleet is.")
