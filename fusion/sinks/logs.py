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

    The record also carries `job_id`, `queue`, `worker` and `event` (the whole event). It never fails: a handler that can't write deals
    with that itself.
    """

    name = "log"
    all_events = True

    def __init__(self) -> None:
        if log.level == logging.NOTSET:
            log.setLevel(logging.INFO)  # asked for by its own setting: --quiet is about what the relay says of itself

    def write(self, events: Sequence[JobEvent]) -> Sequence[Rejected]:
        """Log each event; none is refused."""
        for event in events:
            level = _LEVELS.get(event.event, logging.INFO)
            known = {"job_id": event.job_id, "queue": event.queue, "worker": event.worker or None, "event": event}
            log.log(level, "%s", line_of(event), extra={name: value for name, value in known.items() if value is not None})
        return ()

    def close(self) -> None:
        """There is nothing to close."""


def line_of(event: JobEvent) -> str:
    """The event on one line, whatever it holds: line ends and terminal escapes are written out."""
    what = event.func_name or event.log_tag
    text = printable(f"{event.job_id}{f' {what}' if what else ''}: {event.message or event.event}")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
