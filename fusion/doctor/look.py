"""The data that checks read from Redis: each part at most once, when a check needs it, and up to a limit."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property
from shlex import quote
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fusion.jobs.failures import newest
from fusion.jobs.moment import RunningJob, running_jobs
from fusion.kernel.importing import is_allowed, module_in
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
from fusion.store.client.connections import node_of, unreachable, url_of
from fusion.store.client.failover import read_risks
from fusion.store.layout.codec import text
from fusion.store.layout.history import percentile
from fusion.store.layout.names import CALLBACKS
from fusion.store.layout.slots import tag_of
from fusion.store.read.tolerant import forgiving

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redis import Redis

    from fusion.jobs.failures import Failure
    from fusion.store.client.failover import Risk
    from fusion.store.layout.schema import Schema
    from fusion.store.read.blocked import BlockedJobs
    from fusion.store.read.callback_inspector import DeliveryInfo
    from fusion.store.read.cron_inspector import EntryInfo, SchedulerInfo
    from fusion.store.read.event_inspector import RelayInfo, SinkInfo, StreamInfo
    from fusion.store.read.inspector import QueueInfo, Totals, WorkerInfo
    from fusion.store.read.limit_inspector import LimitInfo
    from fusion.store.read.server_inspector import ServerFacts

#: Most that is read: queues, cron entries, failed jobs (the newest), queues whose recently ended jobs are counted.
QUEUES, ENTRIES, FAILURES, RATED = 500, 500, 500, 50
#: Deferred jobs read of each queue at most.
DEFERRED = 2000
#: Minutes that "recently" means.
RECENT = 10
#: Seconds from which a run counts as long; functions whose usual run is read; jobs of one that must have ended for that; hours that are read.
_LONG, _FUNCTIONS, _ENOUGH, _HOURS = 60.0, 20, 20, 24
#: Of the jobs of a queue, the newest that are read for the key that they share.
_NEWEST = 100
#: Stored fields that name who a job is for, and their names for people.
_KEYS = {"concurrency_key": "concurrency key", "fair_key": "fair key"}


class Look:
    """A snapshot of one Redis. `program`: the name with which proposed commands begin; by default that of this process. Errors of redis-py
    are raised as they are. Keys of a wrong type read as empty and are listed in `broken`."""

    def __init__(self, connection: Redis, settings: Settings, program: str = "") -> None:
        self._connection, self.broken = forgiving(connection)
        self.settings, self.program = settings, program or program_of_process()
        self._url = url_of(connection)

    @property
    def redis_cli(self) -> str:
        """The redis-cli call for this server, which may require a password."""
        if self._url.startswith("unix://"):
            return f"redis-cli -s {urlsplit(self._url).path}"
        if address := node_of(self._connection):
            host, _, port = address.rpartition(":")
            return f"redis-cli -c -h {host.strip('[]')} -p {port}{' --tls' * self._url.startswith('rediss')}"
        return f"redis-cli -u {self._url}" if self._url.startswith(("redis://", "rediss://")) else "redis-cli"

    @property
    def keep_settings(self) -> str:
        """How a setting that CONFIG SET has changed outlives the server: a command, or words if the server has no file for it."""
        if self.server.info.get("config_file"):
            return f"{self.redis_cli} CONFIG REWRITE"
        return "set it also where Redis is started, which is done without a configuration file"

    @property
    def tagged(self) -> bool:
        """True if the prefix has a hash tag: all keys are on one node of a cluster."""
        return bool(tag_of(self.settings.prefix))

    @cached_property
    def nodes(self) -> Mapping[str, str] | None:
        """The nodes of a cluster that can't be reached, each with the reason. None if the url names no cluster."""
        return unreachable(self._connection)

    @cached_property
    def server(self) -> ServerFacts:
        """The server's INFO and its clock."""
        return server_inspector_of(self._connection).facts()

    @cached_property
    def server_whole(self) -> ServerFacts:
        """The same, and also the server's settings, this user's rights and the latency."""
        return server_inspector_of(self._connection).facts(deep=True)

    @cached_property
    def failover_risks(self) -> list[Risk]:
        """The risks of a failover of this Redis."""
        info = self.server.info
        return read_risks(self._connection, info, cluster=bool(info.get("cluster_enabled")))

    @cached_property
    def acl_rules(self) -> str:
        """The ACL rules that a Redis user needs for this prefix, quoted for a shell."""
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
        """Queues with their current state; the first `QUEUES` by name."""
        return inspector_of(self._connection).queues(self.queue_names[:QUEUES])

    @cached_property
    def waiting(self) -> list[QueueInfo]:
        """Queues in which jobs wait."""
        return [queue for queue in self.queues if queue.length]

    @cached_property
    def recent(self) -> Mapping[str, Counter[str]]:
        """Jobs that ended in the last ten minutes, by outcome, of `RATED` queues: those whose jobs have waited longest."""
        by_age = sorted(self.queues, key=lambda q: (not (q.length or q.started), q.oldest is None, q.oldest or self.at))
        names = [queue.name for queue in by_age[:RATED]]
        return dict(zip(names, inspector_of(self._connection).recent(names, RECENT), strict=True))

    def ended(self, queues: Sequence[str]) -> dict[str, int]:
        """Return how many jobs of each of these queues were completed in the last ten minutes."""
        unknown = [name for name in queues if name not in self.recent]
        asked = dict(zip(unknown, inspector_of(self._connection).recent(unknown, RECENT), strict=True)) if unknown else {}
        return {name: (asked if name in asked else self.recent)[name]["completed"] for name in queues}

    @cached_property
    def totals(self) -> Totals:
        """Counts that belong to no single queue."""
        return inspector_of(self._connection).totals()

    @cached_property
    def blocked(self) -> list[BlockedJobs]:
        """Jobs that wait for something other than a time or their turn."""
        return inspector_of(self._connection).blocked()

    @cached_property
    def first_due(self) -> datetime | None:
        """The time at which the next scheduled job is due; None if none is scheduled."""
        return next((at for _, at in inspector_of(self._connection).scheduled(0, 1)), None)

    def running(self, queue: str, limit: int = 3) -> list[str]:
        """Return some running jobs of a queue, in the order in which their leases end."""
        return inspector_of(self._connection).members("started", queue, 0, limit)

    def tasks_flag(self, queue: QueueInfo) -> str:
        """Return ` --tasks MODULE`, quoted, if a worker with these settings may not run the job that waits first in the queue; else nothing."""
        module = module_in(queue.function.rpartition(".")[0])
        return "" if not module or is_allowed(module, self.settings.tasks) else f" --tasks {quote(module)}"

    def shared_key(self, queue: QueueInfo) -> tuple[str, str, int, int] | None:
        """The key that at least half of the newest waiting jobs of a queue share: its kind and name, how many of them have it, and how many were
        read. None if no key is that frequent."""
        inspector = inspector_of(self._connection)
        newest_ids = inspector.waiting(queue.name, max(0, queue.count - _NEWEST), _NEWEST)
        rows = [row for row in inspector.table(newest_ids, [*_KEYS]) if not isinstance(row, Exception)] if newest_ids else []
        for field, kind in _KEYS.items():
            for name, count in Counter(text(row[field]) for row in rows if row[field]).most_common(1):
                if 2 * count >= len(rows):
                    return kind, name, count, len(rows)
        return None

    @cached_property
    def everyone(self) -> list[WorkerInfo]:
        """All registered workers, dead ones and couriers included."""
        return inspector_of(self._connection).workers()

    @cached_property
    def workers(self) -> list[WorkerInfo]:
        """Live workers, without couriers."""
        return [worker for worker in self.everyone if worker.alive and not worker.is_courier]

    @cached_property
    def couriers(self) -> list[WorkerInfo]:
        """Live couriers."""
        return [worker for worker in self.everyone if worker.alive and worker.is_courier]

    def serving(self, queue: str) -> list[WorkerInfo]:
        """Return the live workers that take jobs of a queue."""
        takers = (worker for worker in self.workers if not worker.probation)
        return [worker for worker in takers if any(fnmatchcase(queue, name) for name in worker.queues)]

    @cached_property
    def failures(self) -> list[Failure]:
        """The newest failed jobs."""
        return newest(inspector_of(self._connection), FAILURES)

    def failed_within(self, seconds: float) -> list[Failure]:
        """Return the jobs that failed in the last seconds, without callbacks."""
        return [
            one
            for one in self.failures
            if one.failed_at and one.queue != CALLBACKS and (self.at - one.failed_at).total_seconds() <= seconds
        ]

    def finished_within_a_day(self, queues: Sequence[str]) -> dict[str, int]:
        """Return how many jobs of each of these queues finished in the last day."""
        found = inspector_of(self._connection).histories("queue", queues, _HOURS) if queues else {}
        return {name: sum(step.counts["completed"] for step in steps) for name, steps in found.items()}

    @cached_property
    def long_running(self) -> list[RunningJob]:
        """Jobs that have run for a minute or more, the longest first; of the jobs that workers report, the first thousand are read."""
        found = running_jobs(inspector_of(self._connection), self.workers)
        return [one for one in found if one.started_at and (self.at - one.started_at).total_seconds() >= _LONG]

    @cached_property
    def usual_runs(self) -> dict[str, float]:
        """The p99 of the run time of the functions of `long_running` in the last day, in seconds, where enough of their jobs have ended."""
        names = [*dict.fromkeys(one.function for one in self.long_running)][:_FUNCTIONS]
        usual = dict[str, float]()
        for name, steps in inspector_of(self._connection).histories("function", names, _HOURS).items() if names else ():
            counts = [sum(column) for column in zip(*(row for step in steps for row in step.runs.values()), strict=True)]
            most = percentile(counts, 0.99) if sum(counts) >= _ENOUGH else None
            if most:
                usual[name] = most
        return usual

    @cached_property
    def circle(self) -> list[str]:
        """Jobs that wait for each other in a circle; empty without one."""
        return inspector_of(self._connection).circle(self.queue_names[:QUEUES], DEFERRED)

    def failed_recently(self) -> list[Failure]:
        """Return the failures of the last ten minutes, without quarantined jobs and without callbacks."""
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
        """Concurrency keys whose jobs wait while none starts. Nothing is read if no job is blocked."""
        if not any(queue.blocked for queue in self.queues):
            return []
        return limit_inspector_of(self._connection).stuck_limits()

    @cached_property
    def entries(self) -> list[EntryInfo]:
        """Cron entries; the first `ENTRIES` by name."""
        inspector = cron_inspector_of(self._connection)
        return inspector.entries(inspector.entry_ids()[:ENTRIES])

    def last_missed(self, entry: str) -> datetime | None:
        """Return when a tick of the entry was last found to be missed; None if never, or if the entry was run by hand since."""
        for one in cron_inspector_of(self._connection).history(entry, 50):
            if one.outcome == "manual":
                return None
            if one.outcome == "missed":
                return one.at
        return None

    @cached_property
    def schedulers(self) -> list[SchedulerInfo]:
        """Live schedulers."""
        return [one for one in cron_inspector_of(self._connection).schedulers() if one.alive]

    @cached_property
    def stream(self) -> StreamInfo:
        """The event stream."""
        return event_inspector_of(self._connection).stream()

    @cached_property
    def sinks(self) -> list[SinkInfo]:
        """Sinks that a relay has served at any time."""
        return event_inspector_of(self._connection).sinks()

    @cached_property
    def relays(self) -> list[RelayInfo]:
        """Live relays."""
        return [one for one in event_inspector_of(self._connection).relays() if one.alive]

    @cached_property
    def deliveries(self) -> tuple[int, list[DeliveryInfo]]:
        """The number of open callbacks, and the first hundred of them."""
        return callback_inspector_of(self._connection).open()

    @cached_property
    def unsigned_hosts(self) -> list[str]:
        """Hosts that get callbacks without a signature."""
        return callback_inspector_of(self._connection).unsigned()
