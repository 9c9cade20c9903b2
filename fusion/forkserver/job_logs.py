"""The logging of jobs, as their worker has it: DICT_CONFIG of its `-c` module, and lines of JSON. Loaded where there is one of the two."""

from __future__ import annotations

import logging
import logging.config
from collections.abc import Iterator
from typing import Any

from fusion import context
from fusion.kernel.json_lines import JSONFormatter

#: By this name it stands among what each process does by itself, if that can't be done ahead of a fork.
NAME = "DICT_CONFIG"


class JobLines(JSONFormatter):
    """Lines with the job in them."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        if (job := context.get_current_job()) is not None:
            vars(record).setdefault("job_id", job.id)
            vars(record).setdefault("queue", job.origin)
        return super().format(record)


def set_up(config: dict[str, Any]) -> None:
    """Configure the logging of this process. Raises what `dictConfig` does."""
    logging.config.dictConfig(config)


def write_json() -> None:
    """Have all handlers that there are write JSON, and the one that writes where there is none. Warnings go the same way."""
    logging.captureWarnings(True)
    if not logging.root.handlers and logging.lastResort is not None:
        logging.getLogger("py.warnings").handlers = [logging.lastResort]  # else nobody writes them
    lines = JobLines()
    for handler in _handlers():
        handler.setFormatter(lines)


def _handlers() -> Iterator[logging.Handler]:
    if logging.lastResort is not None:
        yield logging.lastResort
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield from logger.handlers
