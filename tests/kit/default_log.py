"""A logger of its own whose one handler is the default one, on a stream of the test's."""

from __future__ import annotations

import io
import itertools
import logging
from typing import TextIO

from fusion.kernel.defaults import QUEUE
from fusion.runtime.job_log import JobLog
from fusion.runtime.terminal_log import DATE_FORMAT, LOG_FORMAT, TerminalHandler, WorkerNames
from fusion.store.layout.records import Claimed

NUMBERS = itertools.count()


class Member:
    """As much of a registration as a signature asks for."""

    name = "host.1"


class DefaultLog:
    """A logger `w` below `f`, whose one handler is the default one on a stream of the test's."""

    def __init__(self, stream: TextIO) -> None:
        name = f"terminal-log-{next(NUMBERS)}"
        self.parent, self.logger = logging.getLogger(name), logging.getLogger(f"{name}.w")
        self.parent.propagate = False  # pytest has handlers of its own
        self.parent.setLevel(logging.INFO)
        self.handler = TerminalHandler()
        self.handler.setFormatter(logging.Formatter(LOG_FORMAT, DATE_FORMAT, defaults={"worker": "-"}))
        self.handler.setStream(stream)
        self.parent.addHandler(self.handler)
        self.logger.addFilter(WorkerNames(Member()))  # type: ignore[arg-type]
        self.jobs = JobLog(self.logger, True)


def memory() -> io.TextIOWrapper:
    """A stream whose bytes `written` returns."""
    return io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace", newline="", write_through=True)


def written(stream: TextIO) -> bytes:
    return stream.buffer.getvalue()  # type: ignore[attr-defined, no-any-return]


def job(text: str = "shop.send(1)", queue: str = QUEUE, number: int = 1) -> Claimed:
    return Claimed(queue, f"job-{number}", "1:1:1", {b"description": text.encode("utf-8", "surrogatepass")})
