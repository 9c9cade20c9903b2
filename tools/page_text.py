"""The text of a page of the docs: its sentences and its table cells, without code, generated parts and Markdown's signs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Pages that are made from the code, or that record what was decided.
NOT_WRITTEN = {"api", "cli", "errors", "http-reference", "keys", "settings"}

_NOT_TEXT = re.compile(
    r"^ *```.*?^ *```$|^---\n.*?^---$|<!-- (?P<name>[\w ]+): made by .*?<!-- end of (?P=name) -->|<!--.*?-->|^<picture>$.*?^</picture>$",
    re.DOTALL | re.MULTILINE,
)
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.) +")
_LINK = re.compile(r"!?\[((?:[^][]|\[[^]]*\])*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[A-Z`\"(*\d])|(?<=[.!?]\))\s+(?=[A-Z`])")
#: A full stop that ends no sentence.
_SHORT = re.compile(r"\b(e\.g|i\.e|etc|vs|cf)\.", re.IGNORECASE)


def pages() -> list[Path]:
    """The pages that people write, README first."""
    docs = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.stem not in NOT_WRITTEN and path.parent.name != "adr")
    return [ROOT / "README.md", *docs]


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each heading, paragraph, list item and table cell, behind its kind: `head`, `text`, or `cell`."""
    kept: list[str] = []
    for line in [*_NOT_TEXT.sub("\n\n", text).splitlines(), ""]:
        head, row = line.startswith("#"), line.lstrip().startswith("|")
        item = _ITEM.match(line)
        if kept and (head or row or item or not line.strip()):
            yield "text", " ".join(kept)
            kept = []
        if head:
            yield "head", line.lstrip("# ")
        elif row:
            if not re.fullmatch(r"[|:\s-]+", line):
                yield from (("cell", cell.strip()) for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")) if cell.strip())
        elif line.strip():
            kept.append(line[item.end() :] if item else line.strip().removeprefix("> "))


def plain(text: str) -> str:
    """The text as it is read aloud: a link is its words, and code is one word."""
    text = re.sub(r"`+[^`]+`+", "`code`", _LINK.sub(r"\1", text))
    return _SHORT.sub(r"\1", re.sub(r"[*_]{1,2}(?=\w)|(?<=\w)[*_]{1,2}(?!\w)", "", text))


def words(text: str) -> int:
    """How many words it has."""
    return len([word for word in plain(text).split() if re.search(r"\w", word)])


def sentences(text: str) -> list[str]:
    """The sentences of a paragraph; one that ends with a colon before a list counts as one."""
    return [one for one in _END.split(plain(text)) if re.search(r"\w", one)]
