"""The project's own source as syntax trees, for rules that an import linter can't state."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def modules(*folders: str) -> list[Path]:
    """Every Python file below `folders`, relative to the checkout."""
    return sorted(path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py"))


def parse(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(), str(path))


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of every string constant that is not a docstring, parts of f-strings included."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) and id(node) not in bare:
            yield node.lineno, node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of every call: `method` of `something.method(...)`, `function` of `function(...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.lineno, node.func.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.lineno, node.func.id


def imports(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of every absolute import; name is empty for `import module`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)
