"""Writes figures as a page that Prometheus reads, by prometheus-client. Import this only where a page is made: that library is large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import PROCESS_COLLECTOR
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from fusion.metrics.figures import Figures
from fusion.store.layout.history import BOUNDS

#: The format that every Prometheus reads.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: The labels `le` of the buckets; the last one has no bound, as what took longer counts there, too.
_EDGES = (*(f"{bound:g}" for bound in BOUNDS[:-1]), "+Inf")


def page(figures: Figures, *, process: bool = False) -> bytes:
    """Write the figures. `process`: add those that prometheus-client reads of this process (`process_resident_memory_bytes`, ...)."""
    families = list(_families(figures))
    if process:
        families += PROCESS_COLLECTOR.collect()
    return written(families)


def written(families: Iterable[Family]) -> bytes:
    """Write families of the library's own."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(families))
    return generate_latest(registry)


class _Given(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def describe(self) -> list[Family]:
        """Return nothing, so that the library does not look for names that stand twice."""
        return []

    def collect(self) -> list[Family]:
        """Return the families."""
        return self._families


def _families(figures: Figures) -> Iterator[Family]:
    for metric, rows in figures.values.items():
        family = (CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily)(
            metric.name, metric.about, labels=metric.labels
        )
        for labels, value in sorted(rows.items()):
            family.add_metric(labels, value)
        yield family
    for metric, spreads in figures.spreads.items():
        histogram = HistogramMetricFamily(metric.name, metric.about, labels=metric.labels)
        for labels, spread in sorted(spreads.items()):
            histogram.add_metric(labels, list(zip(_EDGES, accumulate(spread.counts), strict=True)), spread.total)
        yield histogram
