"""The statistics of pairs: the median of their ratios and the interval in which it lies."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

#: Probability with which the interval holds the true median.
CONFIDENCE = 0.95
#: Resamples of the bootstrap.
_RESAMPLES = 2000


class Verdict(Enum):
    """The answer to the question whether NEW is at most this many percent worse than OLD."""

    #: The median and the whole interval are.
    WITHIN = "within"
    #: The interval says neither: more pairs, or a quieter machine.
    UNCLEAR = "unclear"
    #: The median is not, and the whole interval is worse than 1.
    WORSE = "worse"


@dataclass(frozen=True)
class Ratio:
    """NEW divided by OLD. `more_is_better`: a rate, not a cost."""

    median: float
    low: float
    high: float
    pairs: int
    more_is_better: bool

    @classmethod
    def of(cls, starts: Sequence[Sequence[tuple[float, float]]], more_is_better: bool) -> Ratio:
        """Of pairs (OLD, NEW), in groups that were measured on the same processes. Raises ValueError if a group is empty, or there is none."""
        groups = [[new / old for old, new in pairs] for pairs in starts]
        values = [ratio for group in groups for ratio in group]
        return cls(statistics.median(values), *interval(groups), len(values), more_is_better)

    @property
    def percent_worse(self) -> float:
        """The loss by the median; negative for a gain."""
        return self._loss(self.median)

    def verdict(self, limit: float) -> Verdict:
        """Compare with a limit in percent."""
        best, worst = sorted((self._loss(self.low), self._loss(self.high)))
        if worst <= limit:
            return Verdict.WITHIN
        return Verdict.WORSE if self.percent_worse > limit and best > 0 else Verdict.UNCLEAR

    def _loss(self, ratio: float) -> float:
        return 100 * (1 - ratio if self.more_is_better else ratio - 1)


def interval(groups: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The interval of the median of all values by a bootstrap of groups, then of values within them.

    The luck of a start (where memory lies, which core wakes which) stays with all values of its group, so that more values in a group
    tell less than more groups. The same input has the same answer. Raises ValueError if a group is empty, or there is none.
    """
    if not all(groups) or not groups:
        raise ValueError("no values, no median")
    chance = random.Random(0)  # noqa: S311 - no secret
    medians = sorted(
        statistics.median(
            value for group in chance.choices(groups, k=len(groups)) for value in chance.choices(group, k=len(group))
        )
        for _ in range(_RESAMPLES)
    )
    out = round(_RESAMPLES * (1 - confidence) / 2)
    return medians[out], medians[-out - 1]
