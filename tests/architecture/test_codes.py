"""The codes of errors and findings: unique, used, described, and never given twice."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusion.exceptions import ConfigurationError, FusionError, JobInterrupted, JobStopped, JobTimeoutException
from fusion.kernel.codes import KINDS, table

ROOT = Path(__file__).resolve().parents[2]
CODES = table()
#: Every code ever given, with its name. Add lines; never change or remove one.
GIVEN = dict(line.split(" ") for line in (Path(__file__).parent / "codes_given.txt").read_text().splitlines())
_CODE = re.compile(r"FUS-\d{3}")
#: Modules that define errors.
_DEFINING = (
    "fusion.exceptions",
    "fusion.delivery.errors",
    "fusion.delivery.signing",
    "fusion.events.sink",
    "fusion.execution.frames",
    "fusion.operations.desk",
    "fusion.sinks.es_client",
)
_CODED = (FusionError, JobInterrupted, JobStopped, JobTimeoutException)


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / "fusion").rglob("*.py")):
        yield path, ast.parse(path.read_text())


def _strings() -> Iterator[str]:
    for _, tree in _trees():
        yield from (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _errors() -> list[Any]:
    modules = map(importlib.import_module, _DEFINING)
    found = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    return sorted((one for one in found if issubclass(one, _CODED)), key=lambda one: one.__name__)


def test_every_code_in_the_sources_is_in_the_table() -> None:
    used = {text for text in _strings() if _CODE.fullmatch(text)}
    assert used - CODES.keys() == set()


def test_every_code_in_the_table_is_used() -> None:
    used = {text for text in _strings() if _CODE.fullmatch(text)}
    assert CODES.keys() - used == set()


def test_every_code_is_described() -> None:
    for code, (name, *texts) in CODES.items():
        assert _CODE.fullmatch(code) and code[4] in KINDS, code
        assert re.fullmatch(r"[A-Za-z-]+", name), code
        assert all(text.endswith((".", ")")) and len(text) < 250 for text in texts), code


def test_codes_are_in_order_and_their_names_unique() -> None:
    assert list(CODES) == sorted(CODES)
    assert len({entry.name for entry in CODES.values()}) == len(CODES)


def test_a_code_keeps_its_name_for_ever() -> None:
    assert {code: entry.name for code, entry in CODES.items() if GIVEN.get(code) != entry.name} == {}, (
        "a new code gets a line in codes_given.txt; one that was given before never gets another name"
    )
    assert list(GIVEN) == sorted(GIVEN)


def test_every_class_of_errors_has_a_code_of_its_own() -> None:
    found = [one for one in _errors() if one is not FusionError and not one.__name__.startswith("_")]
    assert len(found) > 40
    assert {one.__name__: CODES[one.code].name for one in found if CODES[one.code].name != one.__name__} == {}


def test_no_class_of_errors_is_defined_in_another_module() -> None:
    names = {one.__name__ for one in _errors()}
    # RQ's names, and Fusion's errors that redis-py's family includes, have the codes of what they stand for.
    defining = {module.replace(".", "/") + ".py" for module in (*_DEFINING, "fusion.rq.exceptions", "fusion.store.client.given")}
    for path, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and str(path.relative_to(ROOT)) not in defining:
                assert not {base.id for base in node.bases if isinstance(base, ast.Name)} & names, f"{path}: {node.name}"


def test_every_refusal_to_start_has_a_code_of_its_cause() -> None:
    without = []
    for path, tree in _trees():
        for node in ast.walk(tree):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ConfigurationError"
            if called and not any(one.arg == "code" for one in node.keywords):
                without.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert without == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FusionError("no"), "no [FUS-100]"),
        (ConfigurationError("no", code="FUS-202"), "no [FUS-202]"),
        (ConfigurationError(f"a: {FusionError('no')}; b", code="FUS-202"), "a: no; b [FUS-202]"),
        (JobStopped(), ""),
        (JobTimeoutException("late"), "late [FUS-157]"),
    ],
)
def test_the_text_of_an_error_ends_with_its_code_alone(error: Any, text: str) -> None:
    assert str(error) == text


def test_the_message_is_to_be_had_without_its_code() -> None:
    for error in (ConfigurationError("no", code="FUS-202"), JobTimeoutException("no")):
        assert error.text() == "no"


def test_the_reference_has_an_anchor_for_every_code() -> None:
    heads = re.findall(r"^### (FUS-\d{3})", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE)
    assert heads == list(CODES)
