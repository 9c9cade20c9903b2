"""Put numbers of a job's record into words: how its process ended, and when it is tried again."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from fusion.jobs.attempts import Attempt
from fusion.kernel import defaults
from fusion.retry import DEFAULT, Retry
from fusion.store.layout.codec import number, text

#: Exit codes with a fixed meaning, apart from 128 plus a signal's number.
_CODES = {126: "a command that may not be executed", 127: "a command that was not found"}
#: Signals that indicate a cause.
_WHY = {
    "SIGSEGV": "it crashed: a bug in native code",
    "SIGBUS": "it crashed: memory that is not there",
    "SIGILL": "it crashed: native code for another processor",
    "SIGFPE": "it crashed: a bug in native code",
    "SIGABRT": "it gave up: an assertion in native code",
    "SIGKILL": "killed from outside",
    "SIGTERM": "asked to end from outside",
    "SIGXCPU": "over a limit of CPU time",
    "SIGXFSZ": "over a limit of a file's size",
}


def ending(attempt: Attempt) -> str:
    """Return in words how the process of an attempt died; empty if it did not die."""
    if attempt.signal is not None:
        name = _signal(attempt.signal)
        if attempt.oom_likely:
            return f"{name}: killed from outside, as the kernel does when memory is short"
        return f"{name}: {_WHY[name]}" if name in _WHY else name
    code = attempt.exit_code
    if code is None:
        return ""
    if code > 128 and (name := _signal(code - 128)) in _WHY:
        return f"exit code {code}: {name}, {_WHY[name]}"
    return f"exit code {code}" + (f": {_CODES[code]}" if code in _CODES else "")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def retries(row: Mapping[str, bytes]) -> tuple[str, int | None]:
    """Return its retry policy in words, and the number of retries left; None if they are not counted."""
    raw = text(row.get("retry"))
    policy = DEFAULT
    if raw:
        try:
            policy = Retry.from_json(raw)
        except (ValueError, TypeError, RecursionError, KeyError):
            return "its policy can't be read", None
    done = max(0, number(row.get("retryCount"), defaults.RETRY_COUNT_START) - defaults.RETRY_COUNT_START)
    left = max(0, policy.max - done)
    if policy.max == 0:
        return "no retry", 0
    if policy is DEFAULT:
        return f"{policy.max} retries of network errors (the default), after 2, 4, 8 ... minutes", left
    counted = policy.within is None or policy.max < _UNCOUNTED
    words = [f"{policy.max} {'retry' if policy.max == 1 else 'retries'}"] if counted else ["retries"]
    if policy.within is not None:
        words.append(f"for {_span(policy.within)} after the first failure")
    if policy.on is not None:
        words.append(f"of {', '.join(policy.on)}")
    if policy.backoff is not None:
        words.append(f"after {_span(policy.backoff)}, doubled each time, an hour at most")
    elif policy.intervals != [0]:
        words.append(f"after {', '.join(map(_span, policy.intervals))}")
    else:
        words.append("at once")
    if policy.place == "back":
        words.append("at the end of its priority")
    return ", ".join(words), left if counted else None


#: From this `max` on, a policy has no limit on the number of retries.
_UNCOUNTED = 1_000_000


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
