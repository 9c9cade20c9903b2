"""Settings for a queue as a whole, in the form that Redis stores."""

from __future__ import annotations

from collections.abc import Mapping

from fusion.exceptions import OptionError
from fusion.kernel.rates import Rate
from fusion.kernel.timeutil import to_delay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Any

    Values = dict[str, str | int | None]

#: Highest number of jobs that a limit may let run at once.
_MOST = 1_000_000
_LONGEST = 10**9


def limit_gate(limit: object) -> Values:
    """Return the value for at most `limit` jobs at once; None removes the limit. OptionError."""
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= _MOST):
        return {"limit": limit}
    raise OptionError(
        "limit", f"use a whole number from 1 to {_MOST}, or None for no limit; to have none start pause the queue", limit
    )


def rate_gate(rate: str | None, burst: int | None = None) -> Values:
    """Return the values for a rate; None removes it. This also ends a temporary hold of the queue. OptionError."""
    if rate is None and burst is not None:
        raise OptionError("burst", "goes with a rate", burst)
    return {"rate": None if rate is None else Rate.parse(rate, burst).stored, "until": None}


def max_wait_gate(max_wait: float | str | timedelta | None) -> Values:
    """Return the value for how long a lower class may wait; None removes it. OptionError."""
    if max_wait is None:
        return {"max_wait": None}
    wait = round(to_delay(max_wait, "max_wait") * 1000)
    if wait < 1:
        raise OptionError("max_wait", "use a time from 1 ms on, or None for none", max_wait)
    return {"max_wait": wait}


def max_length_gate(length: object) -> Values:
    """Return the value for how many jobs may wait; None removes it. OptionError."""
    if length is None or (isinstance(length, int) and not isinstance(length, bool) and 1 <= length <= _LONGEST):
        return {"max_length": length}
    raise OptionError("max_length", f"use a whole number from 1 to {_LONGEST}, or None for no limit of the queue's own", length)


def timeout_gate(timeout: float | str | timedelta | None) -> Values:
    """Return the value for how long a job may wait; None removes it. OptionError."""
    if timeout is None:
        return {"timeout": None}
    try:
        wait = round(to_delay(timeout, "timeout") * 1000)
    except ValueError as error:
        raise OptionError("timeout", str(error), timeout) from None
    if wait < 1:
        raise OptionError("timeout", "use a time from 1 ms on, or None for none of the queue's own", timeout)
    return {"timeout": wait}


def gate_values(wanted: Mapping[str, Any]) -> Values:
    """Return the values for those of `limit`, `rate`, `burst`, `max_wait`, `max_length` and `timeout` that are given. OptionError, for other
    names too."""
    if others := sorted(wanted.keys() - {"limit", "rate", "burst", "max_wait", "max_length", "timeout"}):
        raise OptionError(others[0], "a queue has limit, rate, burst, max_wait, max_length and timeout")
    values: Values = {}
    if "limit" in wanted:
        values |= limit_gate(wanted["limit"])
    if "rate" in wanted or "burst" in wanted:
        values["rate"] = rate_gate(wanted.get("rate"), wanted.get("burst"))["rate"]
    if "max_wait" in wanted:
        values |= max_wait_gate(wanted["max_wait"])
    if "max_length" in wanted:
        values |= max_length_gate(wanted["max_length"])
    if "timeout" in wanted:
        values |= timeout_gate(wanted["timeout"])
    return values
