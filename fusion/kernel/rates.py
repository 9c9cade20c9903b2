"""Rates as people write them ("100/60s") and as the scripts read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import floor

from fusion.exceptions import OptionError
from fusion.kernel.timeutil import parse_seconds

_TEXT = re.compile(r"([0-9]+) ?/ ?([0-9.]*)([smhd])", re.ASCII)
_STORED = re.compile(r"([1-9][0-9]*)/([1-9][0-9]*)/([1-9][0-9]*)", re.ASCII)
#: Most starts of a rate; per second, and at once.
_MOST = 1_000_000
#: Seconds: 30 days.
_LONGEST = 30 * 86_400
_HOW = 'write how many may start in how long, like "100/60s", "10/s" or "5/2m" (units: s, m, h, d)'


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of starts in a time, evenly spread; `burst`: how many may start at once after a rest.

    In any period at most as many start as the rate allows in it, and `burst` more.
    """

    count: int
    #: Milliseconds.
    period_ms: int
    burst: int

    @classmethod
    def parse(cls, text: object, burst: object = None, *, name: str = "rate") -> Rate:
        """Parse "100/60s", "10/s", "5/2m". By default `burst` is what the rate allows in one second, but at least 1.

        OptionError, for the option `name` or "burst", for anything else.
        """
        found = _TEXT.fullmatch(text.strip().lower()) if isinstance(text, str) else None
        try:
            seconds = parse_seconds(f"{found[2] or 1}{found[3]}") if found else 0.0
        except ValueError:
            seconds = 0.0
        if not found or seconds <= 0:
            raise OptionError(name, _HOW, text)
        count, period_ms = int(found[1]), round(seconds * 1000)
        if not 1 <= count <= _MOST:
            raise OptionError(name, f"from 1 to {_MOST} may start; to have none start pause the queue", text)
        if not 1 <= period_ms <= _LONGEST * 1000:
            raise OptionError(name, "the time must be from 1 ms to 30 days", text)
        if count * 1000 > _MOST * period_ms:
            raise OptionError(name, f"at most {_MOST} may start in a second", text)
        if burst is None:
            burst = max(1, floor(count * 1000 / period_ms))
        elif not isinstance(burst, int) or isinstance(burst, bool) or not 1 <= burst <= _MOST:
            raise OptionError("burst", f"use a whole number from 1 to {_MOST}: how many may start at once after a rest", burst)
        return cls(count, period_ms, burst)

    @classmethod
    def of_stored(cls, text: str) -> Rate | None:
        """Parse the result of `stored`; None for anything else."""
        found = _STORED.fullmatch(text)
        return cls(*map(int, found.groups())) if found else None

    @property
    def stored(self) -> str:
        """Return `<count>/<period in ms>/<burst>`, as Redis stores it and `rate.lua` reads it."""
        return f"{self.count}/{self.period_ms}/{self.burst}"

    def __str__(self) -> str:
        """Return the rate as people write it: `100/60s`."""
        return f"{self.count}/{self.period_ms / 1000:.15g}s" if self.period_ms != 1000 else f"{self.count}/s"
