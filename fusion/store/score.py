"""The composite score of a queue: priority in the whole part, order of arrival in the fraction.

`score = priority + 0.5 - seq * 2**-44`, exact in a double for priority <= 255 and |seq| < 2**43; `lua/include/score.lua` is the writing half.
"""

from __future__ import annotations

import math

UNIT = 2.0**-44
MAX_PRIORITY = 255


def score_of(priority: int, seq: int) -> float:
    return priority + 0.5 - seq * UNIT


def priority_of(score: float) -> int:
    return math.floor(score)


def check_priority(priority: object) -> int:
    """Return `priority`, or raise ValueError: it is a whole number from 0 to 255, higher first."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= MAX_PRIORITY:
        raise ValueError(f"priority {priority!r}: use a whole number from 0 to {MAX_PRIORITY} (LOW 0, MODERATE 1, HIGH 2)")
    return priority
