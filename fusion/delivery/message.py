"""The body of a callback: the job and its end. It never contains arguments, a result or an error's text."""

from __future__ import annotations

import json
import re
from datetime import datetime

from fusion.kernel.timeutil import to_iso

# Ids are shorter. Seven texts with at most 12 bytes for each character ("\\ud83d\\ude00") stay below 20 KiB.
_LONGEST = 200
_CLASS = re.compile(r"\w+(?:\.(?:\w+|<locals>))*(?=:|$)")


def message(
    *,
    job_id: str,
    queue: str,
    status: str,
    ended_at: datetime,
    task: str = "",
    log_tag: str = "",
    attempts: int | None = None,
    error: str = "",
) -> bytes:
    """Return the body as JSON in ASCII, in the form that Standard Webhooks recommends. It is below 20 KiB, and the same bytes for the same
    job.

    The type follows from `status`: `job.finished`, `job.failed`. `task` is the function's dotted path. `error` is a class's dotted name: of
    `builtins.ValueError: no such user` only the class is sent.
    """
    at = to_iso(ended_at)
    found = _CLASS.match(error)
    data = {
        "job_id": job_id[:_LONGEST],
        "queue": queue[:_LONGEST],
        "status": status[:_LONGEST],
        "task": task[:_LONGEST],
        "log_tag": log_tag[:_LONGEST],
        "attempts": attempts,
        "ended_at": at,
        "error": found[0][:_LONGEST] if found else None,
    }
    return json.dumps({"type": f"job.{data['status']}", "timestamp": at, "data": data}, separators=(",", ":")).encode("ascii")
