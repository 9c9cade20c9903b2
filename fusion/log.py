"""`Log`: what tasks, and other programs of a service, add to the event stream. Lean, since task modules import it.

In a job, a line goes to the worker over the job's socket, without waiting. If there is no room for it, the line is dropped and counted.
Elsewhere it is written through the current connection. Fusion itself writes the events of a job's steps (queued, processing, ...).
"""

from __future__ import annotations

import os
from time import monotonic

import fusion.kernel.messages  # noqa: F401 - here, so that job processes share it
from fusion import context
from fusion.kernel.redaction import MASK, cut, is_secret, masked_text, masked_value, printable

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any

#: Characters of a line, and of the value of one of its fields.
MAX_LINE = 1024
_MAX_VALUE = 200
#: Seconds without another attempt after one that failed: a program must not wait for a dead Redis at every line.
_PAUSE = 5.0
_again_at = 0.0


class Log:
    """Every method takes a message and fields, which follow it as `name=value`. In both, secrets, URLs and whatever may be a code are masked.

    In a job the line is that job's. Elsewhere `job_id=`, `queue=` and `log_tag=` say what it is about. Nothing is raised; a line that
    can't be written is dropped.
    """

    @staticmethod
    def log(message: object, /, **fields: Any) -> None:
        """Log a line about the work itself: the event `log`."""
        _say("log", message, fields)

    @staticmethod
    def start(message: object = "", /, **fields: Any) -> None:
        """Log that work other than a Fusion job was accepted: the event `queued`."""
        _say("queued", message, fields)

    @staticmethod
    def execution_start(message: object = "", /, **fields: Any) -> None:
        """Log that it began: the event `processing`."""
        _say("processing", message, fields)

    @staticmethod
    def execution_success(message: object = "", /, **fields: Any) -> None:
        """Log that it succeeded: the event `completed`."""
        _say("completed", message, fields)

    @staticmethod
    def execution_failed(message: object = "", /, **fields: Any) -> None:
        """Log that it failed: the event `failed`."""
        _say("failed", message, fields)

    @staticmethod
    def execution_retry(message: object = "", /, **fields: Any) -> None:
        """Log that it failed and will be tried again: the event `retry`."""
        _say("retry", message, fields)


def _say(event: str, message: object, fields: dict[str, Any]) -> None:
    try:
        about = [_name(fields.pop(name, "")) for name in ("job_id", "queue", "log_tag")]
        line = _line(message, fields)
        job = context.get_current_job()
        if job is not None:
            job.say(event, line)
        else:
            _write(event, line, *about)
    except Exception:  # the socket was closed by the task, say; a timeout is none of these and goes through
        return


def _line(message: object, fields: dict[str, Any]) -> str:
    text = masked_text(message, MAX_LINE)
    for name, value in fields.items():
        if len(text) >= MAX_LINE:
            break
        text = f"{text} {cut(printable(name), 64)}={MASK if is_secret(name) else _value(value)}".lstrip()
    return cut(text, MAX_LINE)


def _value(value: object) -> str:
    # The caller chose a word or a number on purpose; a list or a dict is data from elsewhere.
    shown = masked_value(value, _MAX_VALUE, strict=not isinstance(value, (str, int, float)))
    bare = shown[1:-1]
    return bare if shown[0] == '"' and bare and not any(c in ' "=\\' for c in bare) else shown


def _name(value: object) -> str:
    return printable(str(value))[:128] if value else ""


def _write(event: str, line: str, job_id: str, queue: str, log_tag: str) -> None:
    global _again_at
    if monotonic() < _again_at:
        return
    import logging
    import socket

    from fusion.store.access import log_event
    from fusion.store.layout.records import LogLine

    try:
        log_event(LogLine(event, line, job_id, queue, log_tag, worker=f"{socket.gethostname()}.{os.getpid()}"))
    except Exception as error:
        _again_at = monotonic() + _PAUSE
        logging.getLogger("fusion.log").warning("a line of Log was dropped: %s", masked_text(f"{type(error).__name__}: {error}"))
