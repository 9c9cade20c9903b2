"""The names of rq-exporter 3.1, so that boards and alerts made for it go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric as Family

from fusion.metrics.catalogue import MOST_NAMES, OTHER
from fusion.store.read.sample_inspector import FleetSample

if TYPE_CHECKING:
    from fusion.store.read.worker_inspector import WorkerInfo

#: Its statuses that a sample has by queue. Failed and scheduled jobs are each in one set for all queues.
_STATUSES = ("started", "finished", "deferred")
#: Names of counters and their texts, as rq-exporter has them.
_COUNTERS = (
    ("rq_workers_success", "RQ workers success count"),
    ("rq_workers_failed", "RQ workers fail count"),
    ("rq_workers_working_time", "RQ workers spent seconds"),
)


class RqNames:
    """Makes the families of rq-exporter from samples. It keeps what workers without series of their own have counted, as they come and go
    and the counter of all of them must not go down."""

    def __init__(self) -> None:
        #: Workers with series of their own, those without, and what the latter counted that are gone.
        self._named: set[str] = set()
        self._others: dict[str, tuple[float, ...]] = {}
        self._gone = [0.0] * len(_COUNTERS)
        self._reads, self._seconds = 0, 0.0

    def families(self, sample: FleetSample) -> Iterator[Family]:
        """Yield the families."""
        self._reads += 1
        self._seconds += sample.seconds
        workers = [one for one in sample.workers if not one.is_courier]
        self._sort(workers)
        states = GaugeMetricFamily("rq_workers", "RQ workers", labels=["name", "state", "queues"])
        counters = [CounterMetricFamily(name, about, labels=["name", "queues"]) for name, about in _COUNTERS]
        others = list(self._gone)
        for one in workers:
            if one.name in self._named:
                queues = ",".join(one.queues)
                states.add_metric([one.name, one.state, queues], 1)
                for counter, value in zip(counters, _counted(one), strict=True):
                    counter.add_metric([one.name, queues], value)
        for values in self._others.values():
            others = [a + b for a, b in zip(others, values, strict=True)]
        if self._others or any(self._gone):
            states.add_metric([OTHER, OTHER, ""], len(self._others))
            for counter, value in zip(counters, others, strict=True):
                counter.add_metric([OTHER, ""], value)
        yield states
        yield from counters
        yield _jobs(sample)
        yield SummaryMetricFamily(
            "rq_request_processing_seconds", "Time spent collecting RQ data", count_value=self._reads, sum_value=self._seconds
        )

    def _sort(self, workers: Iterable[WorkerInfo]) -> None:
        """Give new workers series of their own while there are some left, and note what the others count."""
        alive = {one.name: _counted(one) for one in workers}
        self._named &= alive.keys()
        for name in self._others.keys() - alive.keys():
            self._gone = [a + b for a, b in zip(self._gone, self._others.pop(name), strict=True)]
        for name in sorted(alive.keys() - self._named - self._others.keys()):
            if len(self._named) < MOST_NAMES:
                self._named.add(name)
            else:
                self._others[name] = alive[name]
        for name, before in self._others.items():
            self._others[name] = tuple(map(max, before, alive[name]))


def _counted(one: WorkerInfo) -> tuple[float, ...]:
    return one.successful_jobs, one.failed_jobs, one.working_seconds


def _jobs(sample: FleetSample) -> Family:
    counts: dict[tuple[str, str], int] = {}
    for nth, queue in enumerate(sample.queues):
        label = queue.name if nth < MOST_NAMES else OTHER
        for status in _STATUSES:
            counts[label, status] = counts.get((label, status), 0) + queue.counts[status]
        counts[label, "queued"] = counts.get((label, "queued"), 0) + sum(queue.depths)
    counts["failed", "failed"] = sample.failed
    counts["scheduled", "scheduled"] = sample.scheduled
    family = GaugeMetricFamily("rq_jobs", "RQ jobs by state", labels=["queue", "status"])
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    return family
