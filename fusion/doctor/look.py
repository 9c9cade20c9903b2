"""What checks look at: read at most once each, when a check asks, and never more than so much of it."""

from __future__ import annotations

import re
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property
from shlex import quote
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fusion.jobs.failures import newest
from fusion.kernel.program import name as program_of_process
from fusion.settings import Settings
from fusion.store.access import (
    callback_inspector_of,
    cron_inspector_of,
    event_inspector_of,
    inspector_of,
    limit_inspector_of,
    schema_broker_of,
    server_inspector_of,
)
from fusion.store.client.connections import url_of
from fusion.store.layout.names import CALLBACKS
from fusion.store.read.tolerant import forgiving

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from redis import Redis

    from fusion.jobs.failures import Failure
    from fusion.store.layout.schema import Schema
    from fusion.store.read.blocked import BlockedJobs
    from fusion.store.read.callback_inspector import DeliveryInfo
    from fusion.store.read.cron_inspector import EntryInfo, SchedulerInfo
    from fusion.store.read.event_inspector import RelayInfo, SinkInfo, StreamInfo
    from fusion.store.read.inspector import QueueInfo, Totals, WorkerInfo
    from fusion.store.read.limit_inspector import LimitInfo
    from fusion.store.read.server_inspector import ServerFacts

#: Of queues, of cron entries, of failed jobs (the newest), of queues whose recent ends are counted: so many are looked at.
QUEUES, ENTRIES, FAILURES, RATED = 500, 500, 500, 50
#: Deferred jobs of each queue.
DEFERRED = 2000
#: Minutes that "recently" means.
RECENT = 10


class Look:
    """One look at one Redis. `program`: how commands are called, if not as this process was. Raises redis-py's errors as they come, but for
    keys of a wrong type, which read as empty and stand in `broken`."""

    def __init__(self, connection: Redis, settings: Settings, program: str = "") -> None:
        self._connection, self.broken = forgiving(connection)
        self.settings, self.program = settings, program or program_of_process()
        self._url = url_of(connection)

    @property
    def redis_cli(self) -> str:
        """How redis-cli is called for this server, who may want a password."""
        if self._url.startswith("unix://"):
            return f"redis-cli -s {urlsplit(self._url).path}"
        return f"redis-cli -u {self._url}" if self._url.startswith(("redis://", "rediss://")) else "redis-cli"

    @cached_property
    def server(self) -> ServerFacts:
        """The server's INFO and clock."""
        return server_inspector_of(self._connection).facts()

    @cached_property
    def server_whole(self) -> ServerFacts:
        """Also its settings, this user's rights, and how fast it answers."""
        return server_inspector_of(self._connection).facts(deep=True)

    @cached_property
    def acl_rules(self) -> str:
        """What a Redis user must be allowed under this prefix, as a shell takes it."""
        return " ".join(map(quote, re.findall(r"\([^)]*\)|\S+", server_inspector_of(self._connection).rules())))

    @cached_property
    def schema(self) -> Schema:
        """The layout of the data."""
        return schema_broker_of(self._connection).stored()

    @cached_property
    def rq_workers(self) -> list[str]:
        """Workers of stock RQ on the same prefix."""
        return server_inspector_of(self._connection).rq_workers()

    @cached_property
    def at(self) -> datetime:
        """The server's clock."""
        return inspector_of(self._connection).now()

    @cached_property
    def queue_names(self) -> list[str]:
        """All queues in use."""
        return inspector_of(self._connection).queue_names()

    @cached_property
    def queues(self) -> list[QueueInfo]:
        """Queues as they are; of very many the first by name."""
        return inspector_of(self._connection).queues(self.queue_names[:QUEUES])

    @cached_property
    def waiting(self) -> list[QueueInfo]:
        """Those in which jobs wait."""
        return [queue for queue in self.queues if queue.length]

    @cached_property
    def recent(self) -> Mapping[str, Counter[str]]:
        """What ended in the last ten minutes, of so many queues: first those that wait longest."""
        by_age = sorted(self.queues, key=lambda q: (not (q.length or q.started), q.oldest is None, q.oldest or self.at))
        names = [queue.name for queue in by_age[:RATED]]
        return dict(zip(names, inspector_of(self._connection).recent(names, RECENT), strict=True))

    def ended(self, queues: Sequence[str]) -> dict[str, int]:
        """How many jobs of these queues were completed in the last ten minutes."""
        unknown = [name for name in queues if name not in self.recent]
        asked = dict(zip(unknown, inspector_of(self._connection).recent(unknown, RECENT), strict=True)) if unknown else {}
        return {name: (asked if name in asked else self.recent)[name]["completed"] for name in queues}

    @cached_property
    def totals(self) -> Totals:
        """Counts that are of no queue."""
        return inspector_of(self._connection).totals()

    @cached_property
    def blocked(self) -> list[BlockedJobs]:
        """What waits for something other than a time or its turn."""
        return inspector_of(self._connection).blocked()

    @cached_property
    def first_due(self) -> datetime | None:
        """When the job is due that waits for the soonest time."""
        return next((at for _, at in inspector_of(self._connection).scheduled(0, 1)), None)

    def running(self, queue: str, limit: int = 3) -> list[str]:
        """Some of the jobs of a queue that run, those first whose lease ends first."""
        return inspector_of(self._connection).members("started", queue, 0, limit)

    @cached_property
    def everyone(self) -> list[WorkerInfo]:
        """All that is listed as a worker, couriers included."""
        return inspector_of(self._connection).workers()

    @cached_property
    def workers(self) -> list[WorkerInfo]:
        """Workers that live."""
        return [worker for worker in self.everyone if worker.alive and not worker.is_courier]

    @cached_property
    def couriers(self) -> list[WorkerInfo]:
        """Couriers that live."""
        return [worker for worker in self.everyone if worker.alive and worker.is_courier]

    def serving(self, queue: str) -> list[WorkerInfo]:
        """Workers that live and take jobs that wait in a queue."""
        takers = (worker for worker in self.workers if not worker.probation)
        return [worker for worker in takers if any(fnmatchcase(queue, name) for name in worker.queues)]

    @cached_property
    def failures(self) -> list[Failure]:
        """The newest failed jobs."""
        return newest(inspector_of(self._connection), FAILURES)

    @cached_property
    def circle(self) -> list[str]:
        """Jobs that wait for each other, each for the next."""
        return inspector_of(self._connection).circle(self.queue_names[:QUEUES], DEFERRED)

    def failed_recently(self) -> list[Failure]:
        """Of these, those of the last ten minutes that nobody has set aside; callbacks are no jobs."""
        return [
            one
            for one in self.failures
            if one.failed_at
            and not one.quarantined
            and one.queue != CALLBACKS
            and (self.at - one.failed_at).total_seconds() <= RECENT * 60
        ]

    @cached_property
    def stuck_keys(self) -> list[LimitInfo]:
        """Concurrency keys whose jobs wait while none starts; nobody is asked if no job is blocked."""
        if not any(queue.blocked for queue in self.queues):
            return []
        return limit_inspector_of(self._connection).stuck_limits()

    @cached_property
    def entries(self) -> list[EntryInfo]:
        """Cron entries; of very many the first by name."""
        inspector = cron_inspector_of(self._connection)
        return inspector.entries(inspector.entry_ids()[:ENTRIES])

    def last_missed(self, entry: str) -> datetime | None:
        """When it was last decided that a tick of the entry had been missed; None, too, if somebody has run it by hand since."""
        for one in cron_inspector_of(self._connection).history(entry, 50):
            if one.outcome == "manual":
                return None
            if one.outcome == "missed":
                return one.at
        return None

    @cached_property
    def schedulers(self) -> list[SchedulerInfo]:
        """Schedulers that live."""
        return [one for one in cron_inspector_of(self._connection).schedulers() if one.alive]

    @cached_property
    def stream(self) -> StreamInfo:
        """The event stream."""
        return event_inspector_of(self._connection).stream()

    @cached_property
    def sinks(self) -> list[SinkInfo]:
        """Sinks that were ever served."""
        return event_inspector_of(self._connection).sinks()

    @cached_property
    def relays(self) -> list[RelayInfo]:
        """Relays that live."""
        return [one for one in event_inspector_of(self._connection).relays() if one.alive]

    @cached_property
    def deliveries(self) -> tuple[int, list[DeliveryInfo]]:
        """How many callbacks have not ended, and the first hundred of them."""
        return callback_inspector_of(self._connection).open()

    @cached_property
    def unsigned_hosts(self) -> list[str]:
        """Hosts that get callbacks without a signature."""
        return callback_inspector_of(self._connection).unsigned()
