"""docs/guarantees.md names tests that are there."""

from __future__ import annotations

import re

from tests.kit.process import ROOT


def test_every_test_that_the_promises_name_exists() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    promises = re.findall(r"^\| (P\d+) \|.*`tests/[\w/]+\.py::\w+`", page, re.MULTILINE)
    assert promises == [f"P{n}" for n in range(1, 16)], "each promise names a test"
    missing = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []
