"""A mistake that somebody could have made, as a change of the sources."""

from __future__ import annotations

import re
from dataclasses import dataclass

LUA = "fusion/store/lua/"
INCLUDE = LUA + "include/job/"


@dataclass(frozen=True)
class Edit:
    """In this file, `old`, which stands there once, becomes `new`."""

    path: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        assert text.count(self.old) == 1, f"{self.path} has {text.count(self.old)} times, not once: {self.old!r}"
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutant:
    """`caught_by`: node ids of pytest, each of which fails; of a function with parameters and none named, one of its cases."""

    letter: str
    name: str
    caught_by: tuple[str, ...]
    edits: tuple[Edit, ...]


def a_mutant(letter: str, name: str, caught_by: str, *edits: Edit) -> Mutant:
    """`caught_by`: nodes below tests/, a space between them."""
    return Mutant(letter, name, tuple(f"tests/{node}" for node in re.split(r" (?=[\w/]+\.py::)", caught_by)), edits)
