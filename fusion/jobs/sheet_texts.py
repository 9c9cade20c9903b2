"""Texts of a job's sheet, masked: what it was given and returned, and the traceback of its last failed run."""

from __future__ import annotations

import re

from fusion.jobs.masked import SHOWN, masked_arguments
from fusion.jobs.sheet import Sheet
from fusion.kernel.redaction import masked_result, masked_text, printable

#: Characters of a line of a traceback; lines of it that are shown, and of all of it.
_LINE, TRACE, WHOLE_TRACE = 1024, 12, 1000
#: Said in place of arguments that nobody may look into.
PICKLED = "not shown: pickled"
_TOO_LARGE = "not shown: {} bytes"
#: Spaces before a line of a source, which follows a place.
_SOURCE_INDENT = 4
#: A line of a traceback that says where, and nothing of what was at hand.
_WHERE = re.compile(r'\s*File "[^"]{1,300}", line \d+, in \S{1,200}\s*$')


def arguments(sheet: Sheet) -> str | None:
    """Its arguments, masked, as JSON; a sentence in place of those that are not looked into."""
    raw = sheet.facts.row.get("data")
    if "data" in sheet.facts.too_large:
        return _TOO_LARGE.format(sheet.facts.sizes["data"])
    if raw is None:
        return None
    return PICKLED if sheet.is_pickled else masked_arguments(raw)


def stored_json(sheet: Sheet, name: str) -> str | None:
    """A field of JSON, masked."""
    raw = sheet.facts.row.get(name)
    if name in sheet.facts.too_large:
        return _TOO_LARGE.format(sheet.facts.sizes[name])
    if raw is None:
        return None
    pickled = sheet.is_pickled and (name == "result" or raw.lstrip()[:1] not in (b"{", b"["))
    return PICKLED if pickled else masked_result(raw, "json", SHOWN)


def trace_lines(sheet: Sheet) -> list[str]:
    """The traceback of its last failed run, masked: places stay, and of the other lines what may be of the job's data does not."""
    if "exc_info" in sheet.facts.too_large:
        return [_TOO_LARGE.format(sheet.facts.sizes["exc_info"])]
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
