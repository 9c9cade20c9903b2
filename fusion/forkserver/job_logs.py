"""The form of log lines of jobs: DICT_CONFIG of the worker's `-c` module, lines of JSON, and the job that a line is of. Loaded only if there is
something of it to do."""

from __future__ import annotations

import json
import logging
import sys
from _thread import get_ident
from collections.abc import Iterator
from datetime import datetime, timezone
from io import TextIOWrapper
from typing import Any

from fusion import context
from fusion.kernel.json_lines import JobContext, JSONFormatter, dumps

#: Its name among the imports of each process, if it can't be done before the fork.
NAME = "DICT_CONFIG"
#: Most characters of a line that is held until its end.
_MOST = 1 << 20


class RunningJob(JobContext):
    """Names in each record the job that runs here, for formats such as `%(job_id)s`."""

    def about(self) -> dict[str, object]:
        """Return what the record gets."""
        return about(context.get_current_job())


def about(job: context.CurrentJob | None) -> dict[str, object]:
    """Return what log lines say of a job."""
    if job is None:
        return {}
    return {"job_id": job.id, "task": job.func_name, "queue": job.origin, "attempt": job.attempts + 1}


def bind() -> None:
    """Have all existing handlers, and the last-resort handler too, name the job in each record."""
    for handler in _handlers():
        if not any(isinstance(one, RunningJob) for one in handler.filters):
            handler.addFilter(RunningJob())


def bind_structlog(job: context.CurrentJob) -> None:
    """Name the job in the lines of structlog, whose default processors write what is bound. Fail for no reason."""
    try:
        sys.modules["structlog"].contextvars.bind_contextvars(**about(job))
    except Exception:  # an old version, or a part of it is not imported
        pass


def set_up(config: dict[str, Any]) -> None:
    """Configure the logging of this process. Raises what `dictConfig` does."""
    from logging.config import dictConfig

    dictConfig(config)


def write_json() -> None:
    """Make all existing handlers write JSON, and the last-resort handler too. Warnings go the same way."""
    logging.captureWarnings(True)
    if not logging.root.handlers and logging.lastResort is not None:
        logging.getLogger("py.warnings").handlers = [logging.lastResort]  # else nobody writes them
    lines = JSONFormatter()
    for handler in _handlers():
        handler.setFormatter(lines)


def _handlers() -> Iterator[logging.Handler]:
    if logging.lastResort is not None:
        yield logging.lastResort
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield from logger.handlers


class JSONStream(context.JobStream):
    """A standard stream on which each line is an object of JSON: what is printed becomes one, what is one stays so."""

    #: Whether the lines are kept for the logs of jobs, too.
    keeps = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: Lines without an end yet, by thread, each with its job.
        self._begun: dict[int, tuple[str, context.CurrentJob | None]] = {}

    def write(self, text: str) -> int:
        """Write the lines that this text completes."""
        job = context.get_current_job()
        if job is not None and self.keeps:
            job.wrote(self.fileno(), text)
        thread = get_ident()
        begun, of = self._begun.pop(thread, ("", job))
        if of is not job:
            self._say(begun, of)  # that job has ended
            begun = ""
        *lines, rest = (begun + text).split("\n")
        for line in lines:
            self._say(line, job)
        if len(rest) > _MOST:
            self._say(rest, job)
        elif rest:
            self._begun[thread] = rest, job
        return len(text)

    def flush(self) -> None:
        """Write as a line what this thread has begun, and what jobs have that have ended; and flush."""
        for thread, (_, job) in list(self._begun.items()):
            if (thread == get_ident() or (job is not None and job.ended)) and (begun := self._begun.pop(thread, None)):
                self._say(*begun)
        super().flush()

    def _say(self, line: str, job: context.CurrentJob | None) -> None:
        if not line.strip():
            return
        if not _is_object(line):
            now = datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
            name = "stderr" if self is sys.stderr else "stdout"
            line = dumps({"time": now, "level": "INFO", "logger": name, "message": line, **about(job)})
        TextIOWrapper.write(self, line + "\n")


def print_json(*, keep: bool) -> None:
    """Make lines of JSON of all that goes to the standard streams. `keep`: keep what jobs write for their logs."""
    JSONStream.keeps = keep
    context.keep_output(JSONStream)


def _is_object(line: str) -> bool:
    if not (line.startswith("{") and line.endswith("}")):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
