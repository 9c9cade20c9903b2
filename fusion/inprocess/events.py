"""The events of a manager: each is logged and passed to the handlers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from fusion.inprocess.job import ReadyJob, said

log = logging.getLogger("fusion.inprocess")


@dataclass(frozen=True)
class Event:
    """One step. `kind` is one of those in docs/inprocess.md, `text` the line in the log.

    `job_id`, `job_name`, `worker` (the thread's name) and `error` (a traceback, or the reason) are set where the step has them.
    """

    kind: str
    text: str
    job_id: Hashable = None
    job_name: str = ""
    worker: str = ""
    error: str = ""


Handler = Callable[[Event], object]


class Events:
    """Sends each step to the log and the handlers, in the thread of the step. Their errors don't harm that thread."""

    def __init__(self) -> None:
        self._handlers: tuple[Handler, ...] = ()

    def add(self, handler: Handler) -> None:
        """Call `handler` at each step from now on."""
        self._handlers += (handler,)

    def tell(
        self, kind: str, level: int, text: str, *, job: ReadyJob | None = None, worker: str = "", error: str | None = None
    ) -> None:
        """Log the text and call the handlers."""
        event = Event(kind, text, job and job.id, job.name if job else "", worker, error or "")
        try:
            log.log(level, "%s", text, extra={"event": kind, "job_id": event.job_id, "job_name": event.job_name})
            for handler in self._handlers:
                self._call(handler, event)
        except Exception:  # an error of a log handler: it can't be logged
            pass

    @staticmethod
    def _call(handler: Handler, event: Event) -> None:
        try:
            handler(event)
        except BaseException as error:  # sys.exit() in a handler must not end a worker either
            log.error("the handler of on_event raised at step %s, and goes on being called: %s", event.kind, said(error))
