"""Sees what a job that is rehearsed before it leaves behind."""

from __future__ import annotations

import contextvars
import logging
import os
import random
import resource
import signal
import threading
from typing import Any

from fusion import get_current_job
from fusion.execution import perform

_runs = 0
_records: list[logging.LogRecord] = []
_before: dict[str, Any] = {}
_forgotten = threading.Event()


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        _records.append(record)


logging.getLogger().addHandler(_Handler())
logging.getLogger().setLevel(logging.DEBUG)


_own_run = perform.Performer.run


def _counted(self: Any, *args: Any) -> Any:
    global _runs
    _runs += 1
    return _own_run(self, *args)


perform.Performer.run = _counted  # type: ignore[method-assign, assignment]


def _state() -> dict[str, Any]:
    return {
        "alarm": (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0),
        "handlers": [signal.getsignal(number) for number in range(1, signal.NSIG) if number != signal.SIGALRM],
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "context": dict(contextvars.copy_context()),
        "records": len(_records),
        "random": random.getstate(),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "limits": [resource.getrlimit(limit) for limit in range(10)],
        "threads": threading.active_count(),
    }


def note() -> None:
    """Note the state before anything is run; for `after_fork`."""
    global _runs
    _runs = 0
    assert get_current_job() is None
    _before.update(_state())


def note_with_alarm() -> None:
    """As `note`, and an alarm is set."""
    signal.setitimer(signal.ITIMER_REAL, 3600)
    note()


def note_with_handler() -> None:
    """As `note`, and there is a handler of the alarm."""
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    note()


def note_with_thread() -> None:
    """As `note`, beside a thread."""
    threading.Thread(target=_forgotten.wait, daemon=True).start()
    note()


def compare() -> list[Any]:
    """How often something was run in this process, and what is not as it was."""
    now = _state()
    return [_runs, [name for name, before in _before.items() if now[name] != before]]
