"""The id of a web request, carried to the jobs that it enqueues and to their log lines (docs/flask.md, docs/fastapi.md)."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING
from uuid import uuid4

from fusion.middleware import ProducerMiddleware, WorkerMiddleware, register

if TYPE_CHECKING:
    from fusion.context import CurrentJob
    from fusion.middleware import Enqueueing

#: The header of a request and its response that has the id.
HEADER = "X-Request-ID"
#: Its key in a job's meta, in log records and in structlog.
NAME = "request_id"
#: The id of the request that this code runs for; in a job, of the one that enqueued it. None if there is none.
request_id: ContextVar[str | None] = ContextVar("fusion_request_id", default=None)
_ACCEPTED = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def accepted(given: str | None) -> str:
    """Return the id that a client or proxy gave, or a new one if it gave none or a text that a log line should not hold."""
    return given if given and _ACCEPTED.fullmatch(given) else uuid4().hex


class RequestIdFilter(logging.Filter):
    """Gives each log record `request_id`, for formats; `-` where there is none. It lets all records through."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the id if the record has none of its own."""
        vars(record).setdefault(NAME, request_id.get() or "-")
        return True


class RequestIds(ProducerMiddleware, WorkerMiddleware):
    """Stores the request's id in the meta of the jobs that it enqueues. While such a job runs, `request_id` and all log lines have it, and the jobs
    that it enqueues get it too."""

    _bound = False

    def before_enqueue(self, enqueueing: Enqueueing) -> None:
        """Note the id, unless the call gives one of its own."""
        if (found := request_id.get()) is not None:
            for job in enqueueing.jobs:
                job.meta.setdefault(NAME, found)

    def around_job(self, job: CurrentJob) -> Iterator[None]:
        """Set the id for the time of the run; None for a job without one."""
        if not self._bound:  # once the task modules are loaded, handlers are there
            self._bound = True
            bind_handlers()
        found = job.meta.get(NAME)
        before = request_id.get()
        request_id.set(found if isinstance(found, str) else None)
        _bind_structlog(request_id.get())
        try:
            yield
        finally:
            request_id.set(before)
            _bind_structlog(before)


def install() -> None:
    """Carry ids from this process's requests to jobs, and into log lines of the handlers that exist now. Doing it again is harmless."""
    register(_IDS)
    bind_handlers()


def bind_handlers() -> None:
    """Have all existing handlers give their records the id."""
    loggers = [one for one in (logging.root, *logging.root.manager.loggerDict.values()) if isinstance(one, logging.Logger)]
    last = [logging.lastResort] if logging.lastResort is not None else []
    for handler in (*last, *(handler for one in loggers for handler in one.handlers)):
        if not any(isinstance(known, RequestIdFilter) for known in handler.filters):
            handler.addFilter(RequestIdFilter())


def _bind_structlog(found: str | None) -> None:
    contextvars = getattr(sys.modules.get("structlog"), "contextvars", None)
    if contextvars is not None:
        with suppress(Exception):  # another version; no log line is worth a job
            contextvars.unbind_contextvars(NAME)
            if found is not None:
                contextvars.bind_contextvars(**{NAME: found})


_IDS = RequestIds()
