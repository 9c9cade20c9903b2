"""How long jobs wait and run, as counts in fixed buckets, and the fields under which Redis keeps them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

#: Upper bounds of the buckets in seconds. What took longer counts in the last one.
BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 10800, 21600)
#: Names that have a history of their own at a time, of queues and of functions; all others are `OTHER` together.
MOST_NAMES = 200
OTHER = "(other)"
#: What is counted beside the buckets.
COUNTS = ("completed", "failed", "retried")
#: The most of an hour, of functions only: the slowest run in ms, rounded up, and the peak memory of a run's process in bytes.
SLOWEST, PEAK = "slowest", "peak"
#: The scope of what waits, sampled: of each step, by class from LOW on, the most that was seen of its depth and of the age of its oldest.
WAITING = "waiting"
#: Classes that figures tell apart: 0, 1, and 2 with all above it.
CLASSES = 3
#: The two tiers: letter, seconds of a step, steps of a key, seconds that a key is kept.
MINUTES = ("minute", 60, 60, 25 * 3600)
HOURS = ("hour", 3600, 24, 31 * 86400)


def class_of(priority: int) -> int:
    """The class of a priority: there may be 256 of them, and figures of three are read."""
    return min(priority, CLASSES - 1)


def bucket(seconds: float) -> int:
    """The number of the bucket into which a time falls."""
    return min(bisect_left(BOUNDS, seconds), len(BOUNDS) - 1)


def percentile(counts: Sequence[int], share: float) -> float | None:
    """The time in seconds that `share` (0 to 1) of what is counted took at most, by the buckets: inside one as if evenly spread. None of
    nothing."""
    total = sum(counts)
    if not total:
        return None
    rank, seen = share * total, 0
    for number, count in enumerate(counts):
        if count and seen + count >= rank:
            low = BOUNDS[number - 1] if number else 0.0
            return low + (BOUNDS[number] - low) * max(0.0, rank - seen) / count
        seen += count
    return float(BOUNDS[-1])
