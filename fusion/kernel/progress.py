"""The progress that a job reports: the form that its process sends, its record stores, and people see."""

from __future__ import annotations

import json
from math import isfinite

from fusion.kernel.defaults import MAX_NOTE
from fusion.kernel.timeutil import from_iso, now, to_iso

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from datetime import datetime
    from typing import Any

#: Bytes of the stored form that are read: anyone may have written it.
_MOST = 4096


class Progress:
    """The progress that a job reported: `done` of `total` (None: unknown), a `note`, and when it was reported (`at`, by the clock of its
    machine)."""

    __slots__ = ("at", "done", "note", "total")

    def __init__(self, done: float, total: float | None = None, note: str = "", at: datetime | None = None) -> None:
        self.done, self.total, self.note, self.at = done, total, note, at

    @property
    def percent(self) -> float | None:
        """The progress in percent, from 0 to 100; None without a total."""
        return min(100.0, max(0.0, 100.0 * self.done / self.total)) if self.total else None

    def __repr__(self) -> str:
        return f"<Progress {self}>"

    def __str__(self) -> str:
        figures = _shown(self.done) if self.total is None else f"{_shown(self.done)} of {_shown(self.total)}"
        return f"{figures}: {self.note}" if self.note else figures

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Progress) and self.document() == other.document()

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def figures(self) -> str:
        """The progress without the note, which may hold anything: for events."""
        return str(Progress(self.done, self.total))

    def document(self, *, note: bool = True) -> dict[str, Any]:
        """Return the progress as JSON. Without `note` for readers who must not see a job's data, since the note may hold anything."""
        at = None if self.at is None else to_iso(self.at)
        return {"done": self.done, "total": self.total, "at": at} | ({"note": self.note} if note else {})


def to_progress(done: object, total: object, note: object) -> bytes:
    """Return the stored form of a progress made now. ValueError or TypeError for invalid figures, and for a note that is no text."""
    for name, value in (("done", done), ("total", total)):
        if value is None and name == "total":
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"progress({name}={value!r}): use a number")
        if not isfinite(value) or not 0 <= value < 1e18:
            raise ValueError(f"progress({name}={value!r}): use a number from 0 on")
    if not isinstance(note, str):
        raise TypeError(f"progress(note={note!r}): use a text")
    found: dict[str, object] = {"done": done}
    if total is not None:
        found["total"] = total
    if note:
        found["note"] = note if len(note) <= MAX_NOTE else note[: MAX_NOTE - 3] + "..."
    found["at"] = to_iso(now())
    return json.dumps(found, separators=(",", ":")).encode()


def parse_progress(raw: bytes | str | None) -> Progress | None:
    """Parse the stored form; None if it is invalid."""
    if not raw or len(raw) > _MOST:
        return None
    try:
        found = json.loads(raw)
        done, total, note = found["done"], found.get("total"), found.get("note", "")
        at = found.get("at")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not _is_figure(done) or not (total is None or _is_figure(total)) or not isinstance(note, str):
        return None
    return Progress(done, total, note[:MAX_NOTE], from_iso(at) if isinstance(at, str) else None)


def _shown(value: float) -> str:
    return str(value) if type(value) is int else f"{value:g}"


def _is_figure(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18
