"""Jobs and queues as the API shows them. No arguments, but where they are asked for: nobody who may only look learns what was sent to whom."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fusion.exceptions import DeserializationError
from fusion.jobs.attempts import Attempt
from fusion.jobs.sheet import Sheet
from fusion.jobs.sheet_document import document
from fusion.kernel.compression import plain
from fusion.kernel.timeutil import to_iso

#: Bytes of a result or a reason that are shown.
CUT = 4096

_DETAILS = ("reason", "result", "callback_error")


def job_view(sheet: Sheet, *, result: bool, arguments: bool, trace: bool) -> dict[str, Any]:
    """A job as it stands. `result`: with its result, its reason, what its callback raised and its earlier runs, as they are: they may quote what
    the task was given. `arguments`: with that itself, and texts of errors, masked. `trace`: with its traceback, masked."""
    view = document(sheet, details=arguments, trace=trace)
    if result:
        row = sheet.facts.row
        view |= {name: _cut(_text_of(row.get(name)) if name == "result" else row.get(name)) for name in _DETAILS}
        view["runs"] = [_run_view(attempt) for attempt in reversed(sheet.attempt_history)]
        view["progress"] = sheet.progress and sheet.progress.document()
    return view


def _run_view(attempt: Attempt) -> dict[str, Any]:
    """A run that did not finish."""
    error = attempt.error.encode()
    return {
        "outcome": attempt.outcome,
        "started_at": _iso(attempt.start),
        "ended_at": _iso(attempt.end),
        "worker": attempt.worker,
        "error": _cut(error) if error else None,
    }


def _text_of(result: bytes | None) -> bytes | None:
    """A result as text, uncompressed; one that is damaged as it is stored, and so a pickle."""
    try:
        return result and plain(result)
    except DeserializationError:
        return result


def _cut(raw: bytes | None) -> dict[str, Any] | None:
    """As text, since it may be cut anywhere, and may be a pickle."""
    if raw is None:
        return None
    return {"text": raw[:CUT].decode("utf-8", "replace"), "bytes": len(raw), "cut": len(raw) > CUT}


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else to_iso(moment)
