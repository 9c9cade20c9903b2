"""tools/matrix.py: which cells there are, how results are written down, and what is reported where something is missing."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from tools import matrix
from tools.matrix import BEGIN, CLIENTS, DIAGONAL, DJANGOS, END, PYTHONS, RQS, SERVERS, Cell, NotHere, Result, all_cells, save

PAGE = f"# Cells\n\n{BEGIN}\n| cell | a |\n|---|---|\n{END}\n\nThe end.\n"


def server(path: Path, version: str) -> Path:
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_diagonal_has_each_value_of_each_column() -> None:
    columns = list(zip(*(text.split("/") for text in DIAGONAL), strict=True))
    assert [set(column) for column in columns] == [set(PYTHONS), set(SERVERS), set(CLIENTS), set(DJANGOS), set(RQS)]
    assert {str(cell) for cell in all_cells()} >= set(DIAGONAL)
    assert [path for path in matrix.SHORT if not (matrix.ROOT / path).exists()] == []


@pytest.mark.parametrize("text", ["3.10/redis-8/5.3/5.2/2.12.0", "3.11/redis-8/5.3/5.2", "", "3.11/redis-5/latest/5.2/2.12.0"])
def test_what_is_no_cell_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"PYTHON/SERVER/REDIS-PY/DJANGO/RQ out of .*3\.14.*valkey-9"):
        Cell.of(text)


@pytest.mark.parametrize(
    ("told", "name", "verdict"),
    [
        ("Redis server v=8.0.2 sha=0 malloc=libc", "redis-8", True),
        ("Redis server v=7.0.15 sha=0", "redis-7.0", True),
        ("Redis server v=7.2.4 sha=0", "redis-7.0", False),
        ("Valkey server v=8.1.1 sha=0", "valkey-8", True),
        ("Valkey server v=8.1.1 sha=0", "redis-8", False),
        ("Redis server v=80.1.1", "redis-8", False),
        ("something else", "redis-8", False),
    ],
)
def test_a_server_is_known_by_what_it_says_of_itself(tmp_path: Path, told: str, name: str, verdict: bool) -> None:
    assert matrix.is_server(server(tmp_path / "server", told), name) is verdict


def test_a_server_that_was_named_is_taken_or_refused(tmp_path: Path) -> None:
    named = {"redis-8": str(server(tmp_path / "mine", "Redis server v=8.9.9 sha=0"))}
    assert matrix.find_server("redis-8", named) == tmp_path / "mine"
    with pytest.raises(NotHere, match=r"mine is not valkey-8 but redis 8\.9\.9"):
        matrix.find_server("valkey-8", {"valkey-8": named["redis-8"]})


def test_a_python_is_found_or_it_is_said_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    base = sys._base_executable  # type: ignore[attr-defined]
    assert matrix.find_python(own, {own: base}) == base
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NotHere, match=r"no Python 9\.9 .*--python 9\.9=/path/to/python9\.9"):
        matrix.find_python("9.9", {"9.9": base})


def test_a_row_takes_the_place_of_the_cell_s_former_one(tmp_path: Path) -> None:
    page = tmp_path / "matrix.md"
    page.write_text(PAGE)
    one, other = Cell.of(DIAGONAL[0]), Cell.of(DIAGONAL[1])
    versions = ("3.11.7", "redis 6.2.14", "5.3.1", "5.2.9", "2.12.0")
    save(
        [Result(one, "FAILED", "1 failed | 3 passed", versions), Result(other, "passed", "4 passed", versions)],
        page,
        "2026-11-01",
    )
    save([Result(one, "passed", "4 passed", versions), Result(other, "not run", "no Python")], page, "2026-11-02")
    written = page.read_text()
    assert written.count("\n| 3.1") == 2
    assert f"| {one} | 3.11.7 | redis 6.2.14 | 5.3.1 | 5.2.9 | 2.12.0 | passed | 4 passed | 2026-11-02 |\n" in written
    assert f"| {other} | " in written and "no Python" not in written and "2026-11-01" in written
    assert written.startswith("# Cells") and written.endswith(f"{END}\n\nThe end.\n")


def test_a_cell_whose_server_is_missing_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = matrix.try_cell(Cell.of(DIAGONAL[3]), ["tests/none"], 1, {}, {"valkey-8": "/nowhere/valkey-server"})
    assert (result.outcome, result.detail) == ("not run", "/nowhere/valkey-server is not valkey-8 but no such program")
