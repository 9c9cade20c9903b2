"""What these tests have from others is what VENDOR.md says."""

from __future__ import annotations

import hashlib
import re

from tests.architecture.source import ROOT

VENDOR = ROOT / "tests" / "browser" / "vendor"


def test_vendored_files_are_those_of_the_list() -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", (VENDOR / "VENDOR.md").read_text(), re.MULTILINE))
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir() if path.name != "VENDOR.md"}
    assert there == rows
    assert rows.keys() >= {"axe.min.js", "LICENSE"}
