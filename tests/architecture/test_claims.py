"""Each promise of docs/guarantees.md is claimed by tests, in the gate and in nightly, and each of these kills a mutant."""

from __future__ import annotations

import re

import pytest

from tests.architecture.collected import Case, collected
from tests.architecture.source import ROOT, modules
from tests.faults.teeth.mutants import MUTANTS, without_case
from tests.kit.workers import EXECUTORS

PAGE = (ROOT / "docs" / "guarantees.md").read_text()
_TEST = re.compile(r"`(tests/[\w/]+\.py::\w+)`")
#: The tests that the page names for each promise.
SHOWN_BY = {promise: set(_TEST.findall(row)) for promise, row in re.findall(r"^\| (P\d+) \|(.*)$", PAGE, re.MULTILINE)}
#: What each executor keeps in a way of its own.
OF_EACH_EXECUTOR = ("P1", "P5", "P6", "P8")


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    claiming = [path for path in modules("tests") if "@claim(" in (ROOT / path).read_text() and path.name.startswith("test_")]
    return [case for case in collected(claiming) if case.claims]


def test_the_promises_are_numbered() -> None:
    assert [*SHOWN_BY] == [f"P{n}" for n in range(1, 16)]


def test_every_test_that_the_page_names_exists() -> None:
    named = [test.split("::") for test in _TEST.findall(PAGE)]
    assert [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text()] == []


def test_the_page_names_the_tests_that_claim_a_promise(cases: list[Case]) -> None:
    claimed = {promise: {case.test for case in cases if promise in case.claims} for promise in SHOWN_BY}
    assert claimed == SHOWN_BY
    assert {promise for case in cases for promise in case.claims} == {*SHOWN_BY}, "no such promise"


def test_each_promise_is_shown_in_the_gate_and_at_length_in_nightly(cases: list[Case]) -> None:
    assert {promise for case in cases if case.in_gate for promise in case.claims} == {*SHOWN_BY}
    assert {promise for case in cases if case.long for promise in case.claims} == {*SHOWN_BY}
    for promise in OF_EACH_EXECUTOR:
        assert {case.executor for case in cases if case.in_gate and promise in case.claims} == {*EXECUTORS}, promise


def test_each_test_that_claims_a_promise_kills_a_mutant() -> None:
    killing = {without_case(node) for mutant in MUTANTS for node in mutant.caught_by}
    idle = sorted(set[str]().union(*SHOWN_BY.values()) - killing)
    assert not idle, f"add a mutant to tests/faults/teeth/ that these catch: {idle}"
