"""The tests as a house: `make test` and `make test-long` share them by the mark `long`, and helpers of several folders live in tests/kit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, imports, modules, parse

#: What `make test` chooses.
USUAL = "not long and not browser"


def _is_mark(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.long"


def _effective(tree: ast.Module) -> Iterator[ast.AST]:
    """Marks where pytest finds them: at a test, at a class of tests, or in the `pytestmark` of a module that sets it once."""
    settings = [node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"]
    if len(settings) == 1:
        value = settings[0].value
        yield from value.elts if isinstance(value, ast.List) else [value]
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name.lower().startswith("test"):
            yield from node.decorator_list


def _without_effect(tree: ast.Module) -> list[int]:
    """Lines of marks that mark nothing."""
    effective = {id(node) for node in _effective(tree)}
    return [node.lineno for node in ast.walk(tree) if _is_mark(node) and id(node) not in effective]  # type: ignore[attr-defined]


def test_every_mark_marks_a_test() -> None:
    marking = [path for path in modules("tests") if "mark.long" in (ROOT / path).read_text() and path.name.startswith("test_")]
    assert len(marking) > 10
    assert {str(path): lines for path in marking if (lines := _without_effect(parse(path)))} == {}


@pytest.mark.parametrize(
    "code",
    [
        "@pytest.mark.long\ndef helper(): ...",
        "pytestmark = pytest.mark.long\npytestmark = pytest.mark.timeout(9)",
        "marks = [pytest.mark.long]",
    ],
)
def test_a_mark_without_effect_is_noticed(code: str) -> None:
    assert _without_effect(ast.parse(code))


def test_the_targets_differ_in_the_mark_alone() -> None:
    recipes = dict(re.findall(r"^(test|test-long|test-gate):.*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert f'-m "{USUAL}"' in recipes["test"]
    assert recipes["test"].replace(f'-m "{USUAL}"', "-m long") == recipes["test-long"]
    assert recipes["test"].replace(USUAL, "(not long or gate) and not browser") == recipes["test-gate"]


def test_no_test_of_this_run_is_long_if_it_asked_for_the_others(request: pytest.FixtureRequest) -> None:
    if request.config.option.markexpr not in (USUAL, "not long"):
        pytest.skip("a run that asked for something else")
    faults = ROOT / "tests" / "faults"
    assert [item.nodeid for item in request.session.items if item.get_closest_marker("long")] == []
    assert [item.nodeid for item in request.session.items if Path(item.path).is_relative_to(faults)] == []


def _is_there(module: str, name: str) -> bool:
    """Names inside of modules are left to the run itself."""
    path = ROOT / module.replace(".", "/")
    return (
        path.with_suffix(".py").exists()
        or not name
        or (path / f"{name}.py").exists()
        or name in (path / "__init__.py").read_text()
    )


@pytest.mark.long
def test_tests_import_only_helpers_that_are_there() -> None:
    found = [(str(path), line, module, name) for path in modules("tests") for line, module, name in imports(parse(path))]
    assert [row for row in found if row[2].split(".")[0] == "tests" and not _is_there(*row[2:])] == []


def test_the_kit_knows_no_folder_of_tests() -> None:
    found = {(path.name, module) for path in modules("tests/kit") for _, module, _ in imports(parse(path))}
    assert {row for row in found if row[1].startswith("tests.") and not row[1].startswith(("tests.kit", "tests.jobs"))} == set()
