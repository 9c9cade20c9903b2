"""What code, docs and tests refer to is in this repository: decisions, promises, and the targets of links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = ROOT / "docs" / "adr"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").glob("*.md")])
#: Numbered rules of papers that no reader has; `R`s and the like are cited in brackets or at the head of a docstring.
STRANGE = re.compile(r'\b(?:DESIGN|SPEC|HOUSE) ?[A-Z]?\d|\((?:see )?[RFSG]\d+[,)]|"""[RFSG]\d+\b')


def sources() -> Iterator[tuple[Path, str]]:
    """Every text of the project that people read, but this file's."""
    for folder in ("fusion", "tasks", "wrappers", "tests", "docs", "tools", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".lua", ".md"} and path != Path(__file__):
                yield path.relative_to(ROOT), path.read_text()


def test_decisions_and_promises_that_are_cited_are_written_down() -> None:
    numbers = {path.name[:4] for path in DECISIONS.glob("0*.md")}
    promises = set(re.findall(r"^\| (P\d+) \|", (ROOT / "docs" / "guarantees.md").read_text(), re.MULTILINE))
    wrong = [
        f"{path}: {cited}"
        for path, text in sources()
        for cited in re.findall(r'ADR \d+|(?<=""")P\d+|\bP\d+(?=[:,)] )', text)
        if cited.removeprefix("ADR ") not in numbers | promises
    ]
    assert wrong == []


def test_nothing_cites_what_is_not_here() -> None:
    assert [f"{path}: {found}" for path, text in sources() for found in STRANGE.findall(text)] == []


def test_the_index_names_every_decision_by_its_title() -> None:
    index = re.findall(r"\| \[(\d{4})\]\(([\w-]+\.md)\) \| (.+) \|", (DECISIONS / "README.md").read_text())
    pages = sorted(DECISIONS.glob("0*.md"))
    assert [name for _, name, _ in index] == [page.name for page in pages]
    assert [f"# {number}. {title}" for number, _, title in index] == [page.read_text().splitlines()[0] for page in pages]
    for page in pages:
        assert re.findall(r"^## (\w+)$", page.read_text(), re.MULTILINE) == ["Context", "Decision", "Consequences"]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(((?!https?:|mailto:)[^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(path), f"{target}: no such heading"
