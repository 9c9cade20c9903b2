"""The known mistakes of tests/faults/teeth fit the sources, the tests and the page. Whether they are caught: `make teeth`."""

from __future__ import annotations

import pytest

from tests.architecture.collected import collected
from tests.faults.teeth.mutants import BASELINE, MUTANTS, STILL_WORKS, SUBJECTS, Mutant, table, without_case
from tests.kit.process import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.letter)
def test_a_mutant_is_a_change_of_the_sources_as_they_are(mutant: Mutant) -> None:
    texts = {edit.path: (ROOT / edit.path).read_text() for edit in mutant.edits}
    before = dict(texts)
    for edit in mutant.edits:
        texts[edit.path] = edit.applied(texts[edit.path])
    assert all(texts[path] != before[path] for path in texts)
    for path, text in texts.items():
        if path.endswith(".py"):
            compile(text, path, "exec")


def test_each_catching_test_exists() -> None:
    nodes = {without_case(node) for mutant in MUTANTS for node in mutant.caught_by} | {BASELINE[1], STILL_WORKS}
    named = [node.split("::") for node in sorted(nodes)]
    assert [f"{path}::{name}" for path, name in named if f"\ndef {name}(" not in (ROOT / path).read_text()] == []


@pytest.mark.timeout(180)
def test_each_catching_case_exists() -> None:
    cases = {node for mutant in MUTANTS for node in mutant.caught_by if "[" in node}
    found = collected(sorted({ROOT / node.partition("::")[0] for node in cases}))
    assert sorted(cases - {f"{case.test}[{case.case}" for case in found}) == []


def test_each_mutant_has_a_letter_of_its_own() -> None:
    assert len({mutant.letter for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant.letter[0] for mutant in MUTANTS} >= set("abcdefghijkl")


def test_the_page_has_them_all() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    missing = [row for row in table() if row not in page.splitlines()]
    assert missing == [], "python -m tests.faults.teeth --table prints them"


def test_every_file_of_mistakes_is_read() -> None:
    assert {path.stem for path in (ROOT / "tests" / "faults" / "teeth" / "mistakes").glob("*.toml")} == set(SUBJECTS)
