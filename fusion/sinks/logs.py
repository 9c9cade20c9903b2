"""Events to the log: logger `fusion.events`, one line each."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fusion.events.event import JobEvent
from fusion.events.sink import Rejected
from fusion.kernel.redaction import printable

log = logging.getLogger("fusion.events")

#: Characters of a line.
_LONGEST = 1000
_LEVELS = {"failed": logging.ERROR, "abandoned": logging.WARNING, "retry": logging.WARNING, "expired": logging.WARNING}


class LoggingSink:
    """Logs each event on one line, without arguments and results.

    The record also has `job_id`, `queue`, `worker` and `event` (the whole event). The sink never fails: a handler that can't write handles
    its own error.
    """

    name = "log"
    all_events = True

    def __init__(self) -> None:
        if log.level == logging.NOTSET:
            log.setLevel(logging.INFO)  # its own setting asks for it: --quiet only concerns the relay's own log

    def write(self, events: Sequence[JobEvent]) -> Sequence[Rejected]:
        """Log each event; none is refused."""
        for event in events:
            level = _LEVELS.get(event.event, logging.INFO)
            known = {"job_id": event.job_id, "queue": event.queue, "worker": event.worker or None, "event": event}
            log.log(level, "%s", line_of(event), extra={name: value for name, value in known.items() if value is not None})
        return ()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def line_of(event: JobEvent) -> str:
    """Return the event on one line. Line ends and terminal escapes in it are escaped."""
    what = event.func_name or event.log_tag
    text = printable(f"{event.job_id}{f' {what}' if what else ''}: {event.message or event.event}")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
