"""The composite score of a queue: priority in the whole part, order of arrival in the fraction.

`score = priority + 0.5 - seq * 2**-44`, exact in a double for priority <= 255 and |seq| < 2**43; `lua/include/lib/score.lua` is the writing half.
"""

from __future__ import annotations

import math

from fusion.exceptions import OptionError

UNIT = 2.0**-44
MAX_PRIORITY = 255
#: Priorities by name.
CLASSES = {"low": 0, "moderate": 1, "high": 2}

#: Scores of LOW, MODERATE, and HIGH with all above it, for ZCOUNT and ZRANGE BYSCORE.
CLASS_RANGES: tuple[tuple[float | str, float | str], ...] = ((0, "(1"), (1, "(2"), (2, "+inf"))


def score_of(priority: int, seq: int) -> float:
    """The score of a job in its queue: higher priorities first, then lower arrival numbers. Exact for `seq` below 2^43."""
    return priority + 0.5 - seq * UNIT


def priority_of(score: float) -> int:
    """The priority that a score was made of."""
    return math.floor(score)


def check_priority(priority: object) -> int:
    """A priority as its number. OptionError for anything but a whole number from 0 to 255, higher first, and the names in any case."""
    found = CLASSES.get(priority.lower()) if isinstance(priority, str) else priority
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MAX_PRIORITY:
        rule = f"use high, moderate, low, or a whole number from 0 to {MAX_PRIORITY} (low is 0, moderate 1, high 2)"
        raise OptionError("priority", rule, priority)
    return found
