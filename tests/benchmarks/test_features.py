"""`python -m benchmarks features`, and that the table in docs/performance.md holds."""

from __future__ import annotations

import json

from benchmarks.figures.page import ROOT
from benchmarks.instructions import features


def test_the_documents_show_what_a_feature_costs_now() -> None:
    """Checks the commands, which are the same on every machine. If they differ, run `python -m benchmarks features --save`."""
    saved = json.loads(features.SAVED.read_text())
    assert features.page(saved) in (ROOT / "docs" / "performance.md").read_text()
    now = features.counted(instructions=False)["features"]
    assert list(saved["features"]) == list(now)
    for name, row in now.items():
        for part in ("enqueue commands", "run commands"):
            assert saved["features"][name][part] == row[part], (name, part)


def test_the_table() -> None:
    plain = {"client": 58_594, "enqueue": 170_400, "enqueue commands": 13, "run": 430_000, "run commands": 25}
    more = {"client": 68_000, "enqueue": 170_300, "enqueue commands": 14, "run": 1_431_000, "run commands": 25}
    text = features.page({"server": "Redis 7", "python": "3", "event": 45_600, "features": {"no option": plain, "`x`": more}})
    assert "| no option | 59 | 170 | 13 | 430 | 25 |" in text
    assert "takes 46 thousand of the instructions" in text
    assert "| `x` | +9 | +0 | +1 | +1,001 | +0 |" in text
