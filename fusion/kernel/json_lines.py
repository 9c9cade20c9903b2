"""Log lines for machines: one JSON object each."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone

#: Attributes of a record beyond the standard ones: `extra` in the calls of `fusion.worker`.
MORE = ("worker", "job_id", "queue", "description", "attempt")


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
        document |= {name: value for name in MORE if (value := getattr(record, name, None)) is not None}
        if record.exc_info or record.exc_text:
            document["exception"] = record.exc_text or self.formatException(record.exc_info)  # type: ignore[arg-type]
        if record.stack_info:
            document["stack"] = record.stack_info
        return json.dumps(document, default=str).replace("\x7f", "\\u007f")
