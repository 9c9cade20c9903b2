"""Sets up the logging of jobs as in their worker: DICT_CONFIG of its `-c` module, and JSON lines. Loaded only if one of them is used."""

from __future__ import annotations

import logging
import logging.config
from collections.abc import Iterator
from typing import Any

from fusion import context
from fusion.kernel.json_lines import JSONFormatter

#: Its name among the imports of each process, if it can't be done before the fork.
NAME = "DICT_CONFIG"


class JobLines(JSONFormatter):
    """Formats JSON lines that contain the job."""

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
    """Make all existing handlers write JSON, and the last-resort handler too. Warnings go the same way."""
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
