"""Masked texts of a job: its arguments, its result, and the traceback of its last failed run."""

from __future__ import annotations

import re

from fusion.jobs.masked import SHOWN, masked_arguments
from fusion.jobs.sheet import Sheet
from fusion.kernel.redaction import masked_result, masked_text, printable

#: Most characters of a line of a traceback; its last lines in a short and in a full view.
_LINE, TRACE, WHOLE_TRACE = 1024, 12, 1000
#: Shown in place of values that must not be opened.
PICKLED = "not shown: pickled"
_TOO_LARGE = "not shown: {} bytes"
#: Spaces before a source line, which follows the line with its place.
_SOURCE_INDENT = 4
#: A line of a traceback that has only a place, and no data.
_WHERE = re.compile(r'\s*File "[^"]{1,300}", line \d+, in \S{1,200}\s*$')


def arguments(sheet: Sheet) -> str | None:
    """Return its arguments as masked JSON, or a sentence if they can't be shown; None if it has none."""
    raw = sheet.facts.row.get("data")
    if raw is None:
        return too_large(sheet, "data")
    return PICKLED if sheet.is_pickled else masked_arguments(raw)


def stored_json(sheet: Sheet, name: str) -> str | None:
    """Return a JSON field of the record, masked; None if it is missing."""
    raw = sheet.facts.row.get(name)
    if raw is None:
        return too_large(sheet, name)
    return PICKLED if is_pickled(sheet, name, raw) else masked_result(raw, "json", SHOWN)


def is_pickled(sheet: Sheet, name: str, raw: bytes) -> bool:
    """Return True if this field of the record, stored as `raw`, is a pickle or may be one."""
    return sheet.is_pickled and (name in ("data", "result") or raw.lstrip()[:1] not in (b"{", b"["))


def too_large(sheet: Sheet, name: str) -> str | None:
    """Return the sentence in place of a field that is too large to be read; None if it is not."""
    return _TOO_LARGE.format(sheet.facts.sizes[name]) if name in sheet.facts.too_large else None


def trace_lines(sheet: Sheet) -> list[str]:
    """Return the traceback of its last failed run. Lines with a place stay; in the others, anything that may be job data is masked."""
    if told := too_large(sheet, "exc_info"):
        return [told]
    lines = (sheet.exc_info or "").splitlines()[-WHOLE_TRACE:]
    shown, source = [], False
    for line in filter(str.strip, lines):
        if len(line) < _LINE and _WHERE.match(line):
            shown.append(printable(line.rstrip()))
            source = True
            continue
        blank = line[: len(line) - len(line.lstrip())]
        source = source and len(blank) >= _SOURCE_INDENT
        shown.append(printable(blank[:40]) + masked_text(line.strip(), _LINE, source=source))
    return shown
