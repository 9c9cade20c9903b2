"""A query's text as terms, and back."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from fusion.exceptions import InvalidQuery
from fusion.store.query.patterns import SPECIAL

#: Characters of a query: those of a person, and of the queues that a person may see.
LONGEST = 10_000
_FIELD = re.compile(r"(-?)([A-Za-z_]+):")
#: The field of a word without one.
WORD = "text"


@dataclass(frozen=True)
class Term:
    """One condition: the field has one of the values, or with `negative` none of them. `column` is where it began, no part of what it is."""

    field: str
    values: tuple[str, ...]
    negative: bool = False
    column: int = dataclasses.field(default=0, compare=False)

    @property
    def text(self) -> str:
        """As it is written, the same for every way to write it."""
        sign = "-" if self.negative else ""
        if self.field == WORD:
            return sign + _written(self.values[0], bare=True)
        return f"{sign}{self.field}:" + ",".join(map(_written, self.values))


def _written(value: str, *, bare: bool = False) -> str:
    special = any(char.isspace() or char == '"' or (char == "," and not bare) for char in value)
    if special or (bare and (value.startswith("-") or _FIELD.match(value))):
        return '"' + value.replace('"', '\\"') + '"'
    return value


def terms(text: str) -> list[Term]:
    """Read a query's text. InvalidQuery with the column of what can't be read."""
    if len(text) > LONGEST:
        raise InvalidQuery(f"the query is longer than {LONGEST} characters: ask for less at a time")
    if bad := re.search("[\ud800-\udfff]", text):
        raise InvalidQuery("this is not UTF-8 text: check what wrote it", bad.start() + 1)
    found, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        term, at = _term(text, at)
        found.append(term)
    return found


def _term(text: str, start: int) -> tuple[Term, int]:
    named, at = _FIELD.match(text, start), start
    negative = text[at] == "-"
    name = named[2].lower() if named else WORD
    at = named.end() if named else start + negative
    values, value, empty = list[str](), "", "value" if named else "word"
    while at < len(text) and not text[at].isspace():
        char = text[at]
        if char == '"':
            piece, at = _quoted(text, at)
            value += piece
        elif char == "," and named:
            values.append(_full(value, empty, at, name))
            value, at = "", at + 1
        else:
            piece, at = _char(text, at)
            value += piece
    values.append(_full(value, empty, at, name))
    return Term(name, tuple(values), negative, start + 1), at


def _full(value: str, what: str, at: int, name: str) -> str:
    if not value:
        raise InvalidQuery(
            f"{name}: needs a value behind the colon and each comma, like {name}:a,b"
            if what == "value"
            else "here a word is missing",
            at + 1,
        )
    return value


def _quoted(text: str, start: int) -> tuple[str, int]:
    found, at = "", start + 1
    while at < len(text):
        if text[at] == '"':
            return found, at + 1
        piece, at = _char(text, at)
        found += piece
    raise InvalidQuery('this quote is not closed: write another " at its end, or \\" for a quote itself', start + 1)


def _char(text: str, at: int) -> tuple[str, int]:
    if text[at] != "\\":
        return text[at], at + 1
    if at + 1 == len(text):
        raise InvalidQuery("behind a backslash stands the character that is meant as it is: write \\\\ for a backslash", at + 1)
    char = text[at + 1]
    return ("\\" + char if char in SPECIAL else char), at + 2
