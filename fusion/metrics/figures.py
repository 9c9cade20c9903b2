"""The values of metrics at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusion.metrics.catalogue import Metric


@dataclass(slots=True)
class Spread:
    """The value of a histogram: how many fell into each bucket of `layout.history.BOUNDS`, and the sum of all in seconds."""

    counts: list[int]
    total: float


#: Series by metric and labels.
Series = set[tuple[str, tuple[str, ...]]]


class Figures:
    """Collects values by metric and labels. The values of equal labels are combined, as the metric says."""

    def __init__(self) -> None:
        self.values: dict[Metric, dict[tuple[str, ...], float]] = {}
        self.spreads: dict[Metric, dict[tuple[str, ...], Spread]] = {}

    def put(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value."""
        rows = self.values.setdefault(metric, {})
        if labels in rows:
            rows[labels] = max(rows[labels], value) if metric.merge == "max" else rows[labels] + value
        else:
            rows[labels] = value

    def begin_at_zero(self, seen: Series) -> None:
        """Show 0 for each counter and histogram that is not among `seen`, and add it there. Prometheus takes the first value of a series for
        its beginning: without the 0 a rate would lack all that was counted before the first page."""
        for metric, rows in self.values.items():
            if metric.kind == "counter":
                for labels in rows:
                    if (metric.name, labels) not in seen:
                        seen.add((metric.name, labels))
                        rows[labels] = 0
        for metric, spreads in self.spreads.items():
            for labels, spread in spreads.items():
                if (metric.name, labels) not in seen:
                    seen.add((metric.name, labels))
                    spreads[labels] = Spread([0] * len(spread.counts), 0.0)

    def put_spread(self, metric: Metric, counts: Sequence[int], total: float, *labels: str) -> None:
        """Add the value of a histogram."""
        rows = self.spreads.setdefault(metric, {})
        before = rows.get(labels)
        if before is None:
            rows[labels] = Spread(list(counts), total)
        else:
            before.counts[:] = [a + b for a, b in zip(before.counts, counts, strict=True)]
            before.total += total
