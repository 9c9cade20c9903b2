"""When a failed attempt is retried, and after how long. Pure functions and one value object; no clock, no Redis."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fusion.kernel import defaults
from fusion.kernel.sentences import AGAIN, RATE

if TYPE_CHECKING:
    from datetime import timedelta

#: What the default policy retries, matched by name along the exception's bases, so these libraries need not be installed here.
RETRYABLE = (
    "requests.exceptions.ConnectTimeout",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.ReadTimeout",
    "builtins.ConnectionError",
    "builtins.TimeoutError",
    "botocore.exceptions.ClientError",
)


class RetryLater(Exception):
    """Raised by a task to run again in `seconds`, whatever its policy retries; the policy's `max` still counts. At most 24 h."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(reason or AGAIN.format(s=f"{seconds:g}"))
        self.retry_after = seconds


class RateLimited(Exception):
    """Raised by `CurrentJob.rate_limited`: the job goes back, its attempt unspent, and its concurrency key, or without one its queue, is held
    back for `seconds`. At most 24 h."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(reason or RATE.format(s=f"{seconds:g}"))
        self.retry_after = seconds


#: Their dotted names, by which the worker knows them.
RETRY_LATER = "fusion.retry.RetryLater"
RATE_LIMITED = "fusion.retry.RateLimited"
#: The stored `max` of a policy with a window and no count.
_UNCOUNTED = 1_000_000
#: The `backoff` of a policy with a window and no pace; without one it would fail many times a second.
_WITHIN_BACKOFF = 1.0


def retries_done(raw: bytes | None) -> int:
    """Return how many retries a job has had, from its `retryCount`."""
    return int(raw or defaults.RETRY_COUNT_START) - defaults.RETRY_COUNT_START


def bounded(raw: bytes | None, cap: float) -> float | None:
    """Return a number of an outcome frame, limited to 0 to `cap`; None if it is not a number. A task may have written the frame."""
    try:
        value = float(raw or "nan")
    except ValueError:
        return None
    return None if value != value else min(max(0.0, value), cap)


def dotted(kind: type[BaseException] | str) -> str:
    """Return the dotted name of an exception class."""
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


def _window(value: Any) -> float:
    from fusion.kernel.timeutil import parse_seconds

    try:
        seconds = float(parse_seconds(value))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= defaults.FURTHEST:
        raise ValueError(f"Retry(within={value!r}): use a duration over 0: seconds, '90s', '2h', a timedelta")
    return seconds


def _is_number(value: object, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


class Retry:
    """A policy of retries: how many or for how long, after how long each, of which errors.

    `max`: retries after the first attempt; 0 forbids even those of the default policy. `within`: retry for this time (seconds, a timedelta,
    "2h") after the first failure, by the server's clock; the last retry comes when it is over. With both, whichever ends first. `interval`:
    seconds before each retry, one figure or a list whose last one repeats (as in RQ). `backoff`, in its place: seconds that double with each
    retry, up to an hour, plus up to a quarter of jitter. With `within` and neither of these, retries come after 1, 2, 4 ... seconds. `on`:
    exception classes, or their dotted names, that are retried; None means any. `place="back"` sends a retried job to the end of its priority
    instead of its old place. While a job waits for a retry, others of its concurrency key run. With `keep_slot=True` it keeps its slot, so
    that a key with one slot keeps a strict order.
    """

    __slots__ = ("backoff", "intervals", "keep_slot", "max", "on", "place", "within")

    def __init__(
        self,
        max: int | None = None,
        interval: float | Sequence[float] = 0,
        *,
        within: float | str | timedelta | None = None,
        backoff: float | None = None,
        on: type[BaseException] | str | Iterable[type[BaseException] | str] | None = None,
        place: str = "keep",
        keep_slot: bool = False,
    ) -> None:
        intervals = [interval] if isinstance(interval, (int, float)) else list(interval)
        self.within = None if within is None else _window(within)
        if self.within is not None and max is None:
            max = _UNCOUNTED
        if self.within is not None and backoff is None and intervals == [0]:
            backoff = _WITHIN_BACKOFF
        if max is None:
            raise ValueError("Retry(): say how many, max=3, or for how long, within='2h'")
        if not _is_number(max, int) or max < 0:
            raise ValueError(f"Retry(max={max!r}): use a whole number from 1, or 0 for no retry at all")
        if not intervals or any(not _is_number(i, (int, float)) or not 0 <= i <= defaults.FURTHEST for i in intervals):
            raise ValueError(
                f"Retry(interval={interval!r}): use seconds from 0 to {defaults.FURTHEST:.0f} (31 years), one figure or a list"
            )
        if backoff is not None and not 0 < backoff <= defaults.FURTHEST:
            raise ValueError(f"Retry(backoff={backoff!r}): use seconds over 0, up to {defaults.FURTHEST:.0f}")
        if place not in ("keep", "back"):
            raise ValueError(f"Retry(place={place!r}): use 'keep' or 'back'")
        if not isinstance(keep_slot, bool):
            raise ValueError(f"Retry(keep_slot={keep_slot!r}): use True or False")
        self.max, self.intervals, self.backoff, self.place, self.keep_slot = max, intervals, backoff, place, keep_slot
        kinds = (on,) if isinstance(on, (str, type)) else on
        self.on = None if kinds is None else tuple(dotted(kind) for kind in kinds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Retry) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        when = f"backoff={self.backoff}" if self.backoff else f"interval={self.intervals}"
        return f"{self.said[:-1]}, {when}, on={self.on}, place={self.place!r})"

    @property
    def said(self) -> str:
        """The count or the window as text: `Retry(max=3)`."""
        count = f"max={self.max}" if self.within is None or self.max != _UNCOUNTED else ""
        window = "" if self.within is None else f"within={self.within:g}"
        return f"Retry({', '.join(filter(None, (count, window)))})"

    def to_json(self) -> str:
        """Return the stored form: only what differs from the defaults."""
        fields: dict[str, Any] = {"max": self.max}
        if self.within is not None:
            fields["within"] = self.within
        if self.intervals != [0]:
            fields["interval"] = self.intervals
        if self.backoff is not None:
            fields["backoff"] = self.backoff
        if self.on is not None:
            fields["on"] = self.on
        if self.place != "keep":
            fields["place"] = self.place
        if self.keep_slot:
            fields["keep_slot"] = True
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> Retry:
        """Read the stored form; fields that a newer version added are ignored. ValueError or TypeError if it is not a policy."""
        found = json.loads(text)
        known = {name: found[name] for name in _STORED if name in found}
        if known.get("place") not in ("keep", "back"):
            known.pop("place", None)
        return cls(**known)

    def delay(self, retries_done: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
        """Return the seconds before the next attempt, the `retries_done + 1`-th retry."""
        if self.backoff is None:
            return float(self.intervals[min(retries_done, len(self.intervals) - 1)])
        return _backoff(self.backoff, retries_done, uniform)

    def covers(self, class_names: Iterable[str]) -> bool:
        """Return True if an error with these class names, bases included, is to be retried."""
        return self.on is None or any(name in self.on for name in class_names)


def _backoff(base: float, retries_done: int, uniform: Callable[[float, float], float]) -> float:
    # min() on the exponent too: 2 ** 5000 is no float
    return min(defaults.RETRY_CAP, base * 2.0 ** min(retries_done, 32)) * uniform(1.0, 1.0 + defaults.RETRY_JITTER)


#: Names in the stored form of a policy.
_STORED = ("max", "within", "interval", "backoff", "on", "place", "keep_slot")
#: For jobs that name no policy: three retries of what a network does to one.
DEFAULT = Retry(defaults.RETRY_COUNT_END - defaults.RETRY_COUNT_START, backoff=defaults.RETRY_BASE, on=RETRYABLE)
