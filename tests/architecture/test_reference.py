"""What is made of the code is as the code says it now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = {str(path.relative_to(ROOT)): content for path, content in _reference().documents()}


@pytest.mark.parametrize("path", MADE)
def test_what_is_made_of_the_code_is_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text() == MADE[path], f"{path} is not what the code says now; run: make reference"
