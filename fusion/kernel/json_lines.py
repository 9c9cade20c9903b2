"""Log lines for machines: one JSON object each."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone

#: Attributes of a record beyond the standard ones: `extra` in the calls of `fusion.worker`, and what `JobContext` and integrations add.
MORE = ("worker", "job_id", "task", "queue", "description", "attempt", "request_id")
#: What log lines say of the job that they are of.
CONTEXT = ("job_id", "task", "queue", "attempt")
#: Stands for what a record has nothing of.
NOTHING = "-"


class JobContext(logging.Filter):
    """Gives each record the attributes of `CONTEXT`, so that a format may name them: `-` where there is no job. It lets all records through."""

    def about(self) -> dict[str, object]:
        """Return the attributes of the job that runs here; empty for none."""
        return {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Add what the record lacks."""
        found, about = vars(record), self.about()
        for name in CONTEXT:
            found.setdefault(name, about.get(name, NOTHING))
        return True


class JSONFormatter(logging.Formatter):
    """Writes one line per event whatever it contains: JSON escapes characters that would end the line or control a terminal. For DICT_CONFIG
    too."""

    def __init__(self) -> None:
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        document: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc)
            .isoformat(timespec="microseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        document |= {name: value for name in MORE if (value := getattr(record, name, NOTHING)) not in (None, NOTHING)}
        if record.exc_info or record.exc_text:
            document["exception"] = record.exc_text or self.formatException(record.exc_info)  # type: ignore[arg-type]
        if record.stack_info:
            document["stack"] = record.stack_info
        return dumps(document)


def dumps(document: dict[str, object]) -> str:
    """Return an object on one line that controls no terminal."""
    return json.dumps(document, default=str).replace("\x7f", "\\u007f")
