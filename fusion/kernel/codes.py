"""The table of all codes: errors, refusals to start, reasons why a job is held, findings of `doctor`. No running process needs it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

#: First digit of a code -> the kind of thing that has it.
KINDS = {
    "1": "Errors and ends of jobs",
    "2": "Wrong set-ups: refusals to start",
    "3": "Why a job is held",
    "4": "Findings of doctor",
}


class Code(NamedTuple):
    """The meaning of a code. `name`: an exception's class, or a short name. `do`: how to fix it."""

    name: str
    meaning: str
    why: str
    do: str


def table() -> dict[str, Code]:
    """Return all codes, in order."""
    return {
        code: Code(**entry) for code, entry in tomllib.loads((Path(__file__).parent / "codes.toml").read_text("utf-8")).items()
    }
