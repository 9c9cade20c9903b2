"""Jobs that came without the concurrency key that their task declares: enqueued by name, where nobody saw the declaration."""

from __future__ import annotations

import logging
import time

from fusion.runtime.history import History
from fusion.runtime.job_log import one_line

#: Seconds between two lines about the same function; functions of which is known when there was one.
_REPEAT, _MOST = 3600.0, 1000


class KeylessJobs:
    """Names each function of such jobs in the log, and counts them all. They ran, and nothing bounded how many at once."""

    def __init__(self, history: History, log: logging.Logger) -> None:
        self._history, self._log = history, log
        self._named: dict[str, float] = {}

    def ran(self, function: str) -> None:
        """A job of the function has run."""
        self._history.note_keyless(function)
        now = time.monotonic()
        if now - self._named.get(function, -_REPEAT) < _REPEAT:
            return
        if len(self._named) >= _MOST:
            self._named.clear()
        self._named[function] = now
        self._log.warning(
            "jobs of %s come without the concurrency key that its @job declares, and no limit holds for them: where the function can't "
            "be imported, give concurrency_key= with the enqueue",
            one_line(function, 200),
        )
