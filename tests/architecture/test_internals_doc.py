"""docs/internals.md and its pages name every module, stay short, and name the files that answer a question."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP = ROOT / "docs" / "internals.md"
PAGES = sorted((ROOT / "docs" / "internals").glob("*.md"))
#: Pages with generated tables, and two whose cells name tests, fields and scripts.
WIDE = {"api", "cli", "http-reference", "settings", "guarantees", "keys"}
GUIDES = [page for page in sorted((ROOT / "docs").glob("*.md")) if page != TOP and page.stem not in WIDE]
PACKAGES = sorted(path.parent for path in (ROOT / "fusion").rglob("__init__.py"))
#: Files that a newcomer may have to open for each question of "Start here", in its order.
MOST_FILES = [3, 5, 2]


def page_of(package: Path) -> Path:
    """Each package has a page; those of the store but its client and its queries share one."""
    parts = package.relative_to(ROOT).parts
    if parts in (("fusion", "store", "client"), ("fusion", "store", "query")):
        return ROOT / "docs" / "internals" / f"{parts[-1]}.md"
    return ROOT / "docs" / "internals" / f"{parts[min(1, len(parts) - 1)]}.md"


def rows(text: str) -> list[str]:
    """The cells' text of every table, without heads."""
    return [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| module")]


def modules_on(page: Path) -> set[str]:
    """The modules in the first cells of a page's tables."""
    return {name for row in rows(page.read_text()) for name in re.findall(r"`(\w+)`", row.split("|")[1])}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_is_on_its_packages_page(package: Path) -> None:
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    missing = sorted(modules - modules_on(page_of(package)))
    assert missing == [], f"give each a row in {page_of(package).relative_to(ROOT)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_names_no_module_that_is_gone(page: Path) -> None:
    modules = {path.stem for package in PACKAGES if page_of(package) == page for path in package.glob("*.py")}
    assert modules_on(page) - modules == set()


@pytest.mark.parametrize("page", [TOP, *PAGES], ids=lambda path: path.stem)
def test_pages_are_short(page: Path) -> None:
    assert len(page.read_text().splitlines()) < (100 if page == TOP else 60)


@pytest.mark.parametrize("page", [TOP, *PAGES, *GUIDES], ids=lambda path: path.stem)
def test_cells_are_no_longer_than_a_line(page: Path) -> None:
    links = re.compile(r"\]\([^)]*\)")  # not read, but clicked
    cells = [cell.strip() for row in rows(page.read_text()) for cell in links.sub("]", row).split("|")]
    assert [cell for cell in cells if len(cell) > 160] == []


def test_every_page_is_linked_from_the_top() -> None:
    assert {f"internals/{page.name}" for page in PAGES} <= set(re.findall(r"\]\(([^)#]+)", TOP.read_text()))


def test_three_questions_are_answered_by_few_files_that_are_there() -> None:
    section = TOP.read_text().split("## Start here")[1].split("\n## ")[0]
    answers: list[list[str]] = []
    for row in rows(section)[1:]:
        _, question, file, _, _ = (cell.strip() for cell in row.split("|"))
        answers += [[]] if question else []
        answers[-1] += re.findall(r"`(fusion/[\w/.]+)`", file)
    assert [len(answer) <= most for answer, most in zip(answers, MOST_FILES, strict=True)] == [True] * len(MOST_FILES)
    for answer in answers:
        assert answer, "no file is named"
        assert [name for name in answer if not (ROOT / name).is_file()] == []


def test_the_picture_is_what_its_script_draws() -> None:
    check = [sys.executable, str(ROOT / "tools" / "architecture.py"), "--check"]
    assert subprocess.run(check, stdout=subprocess.PIPE, text=True).stdout == ""
