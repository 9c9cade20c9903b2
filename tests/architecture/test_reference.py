"""What is made of the code is as the code says it now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def _reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_documents_are_up_to_date() -> None:
    made = dict(_reference().documents())
    stale = [str(path.relative_to(ROOT)) for path, content in made.items() if path.read_text() != content]
    assert made
    assert stale == [], "these are not what the code says now; run: make reference"
