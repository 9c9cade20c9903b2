"""docs/internals.md names every module and stays short."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_is_named_in_under_sixty_lines() -> None:
    text = (ROOT / "docs" / "internals.md").read_text()
    assert len(text.splitlines()) < 80
    named = set(re.findall(r"`([a-z_]+)`", text))
    modules = {path.stem for path in (ROOT / "fusion").rglob("*.py") if not path.stem.startswith("__")}
    assert modules - named == set()
