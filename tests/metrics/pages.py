"""Pages of metrics as tests read them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: bytes) -> Samples:
    """Every sample of a page, by name and labels. A sample that stands twice is an error."""
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for one in family.samples:
            key = one.name, tuple(sorted(one.labels.items()))
            assert key not in found
            found[key] = one.value
    return found


def one(found: Samples, name: str, /, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def values(found: Samples, label: str) -> set[str]:
    """All values of a label."""
    return {value for _, labels in found for name, value in labels if name == label}


def names(found: Samples) -> set[str]:
    """The names of all metrics; a histogram counts once."""
    return {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name, _ in found}
