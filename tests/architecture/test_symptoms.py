"""docs/troubleshooting.md has for headings what Fusion really says: each is a part of a message in the code, and names its code."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from fusion.kernel.codes import table
from tests.architecture.source import ROOT, modules, parse

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
SYMPTOMS = [(found[1], found[2]) for found in re.finditer(r"^### (.+)\n((?:(?!^##).*\n?)*)", PAGE, re.MULTILINE)]
#: Messages of the Redis server.
_OF_REDIS = {"OOM command not allowed when used memory > 'maxmemory'"}


def template(node: ast.expr) -> str:
    """The text of a message, `\\0` where it has a value."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) if isinstance(part, ast.Constant) else "\0" for part in node.values)
    return "\0"


@cache
def messages() -> tuple[str, ...]:
    nodes = (node for path in modules("fusion") for node in ast.walk(parse(path)))
    texts = {template(node) for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp)}
    return tuple(text for text in texts if " " in text)


@pytest.mark.parametrize("heading", [heading for heading, _ in SYMPTOMS])
def test_a_heading_is_what_fusion_says(heading: str) -> None:
    if heading in _OF_REDIS:
        return
    pattern = re.compile(r"(?:\0|.)*?".join(map(re.escape, heading.strip(". ").split("..."))), re.DOTALL)
    assert any(pattern.search(message) for message in messages())


@pytest.mark.parametrize(("heading", "body"), SYMPTOMS, ids=[heading for heading, _ in SYMPTOMS])
def test_a_symptom_names_its_code_and_says_what_to_do(heading: str, body: str) -> None:
    codes = re.findall(r"\[(FUS-\d{3})\]\(errors\.md#(fus-\d{3})\)", body)
    assert codes
    assert {code for code, _ in codes} <= set(table())
    assert all(code.lower() == anchor for code, anchor in codes)
    assert len(body.split()) < 70


def test_no_heading_stands_there_twice() -> None:
    headings = [heading for heading, _ in SYMPTOMS]
    assert len(headings) == len(set(headings)) > 30
