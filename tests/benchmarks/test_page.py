"""What documents quote of measurements is what was saved of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.figures import page
from benchmarks.figures.figure import SPENT, Figure, Found
from benchmarks.figures.table import ROWS, SECTIONS, merged, reached
from benchmarks.race import Lap

ROOT = Path(__file__).resolve().parents[2]


def _lap(rate: float) -> Lap:
    return Lap(rate, 1.0, 0.0, 40.0, {"worker": 0.5, "horses": 1.0 / rate})


def _run(ratio: float, rate: float) -> Found:
    return Found(
        [Figure("fork", "Fusion / RQ", ratio, at_least=10.0), Figure("fork", "Fusion / RQ" + SPENT, ratio / 100)],
        {"fork": {"Fusion": _lap(rate)}},
    )


@pytest.mark.parametrize(("document", "name", "content"), list(page.blocks()), ids=lambda value: value if len(value) < 30 else "")
def test_documents_quote_what_was_saved(document: str, name: str, content: str) -> None:
    text = (ROOT / document).read_text()
    assert text == page.placed(text, name, content), f"{document} differs from benchmarks/results; run: python -m benchmarks page"


def test_saved_figures_have_a_row_and_every_row_has_figures() -> None:
    found = json.loads(page.SAVED.read_text())
    assert {figure["row"] for figure in found["figures"]} == {*ROWS, "rates"}
    assert len(SECTIONS) <= len(ROWS)


def test_runs_are_shown_by_median_and_spread() -> None:
    found = merged([_run(9.0, 500), _run(12.0, 700), _run(11.0, 600)])
    first, second = found["figures"]
    assert (first["median"], first["least"], first["greatest"]) == (11.0, 9.0, 12.0)
    assert found["races"]["fork"]["Fusion"]["rate"] == 600
    assert [reached(first), reached(second)] == [True, None]
    assert "| Fusion / RQ | 11.00x (9.00 to 12.00) | >= 10 | reached | 0.11x (0.09 to 0.12) |" in page.figures(found)
    assert "1 of 1 bounds are reached" in page.text(found)


@pytest.mark.parametrize(
    ("median", "at_least", "at_most", "verdict"),
    [
        (9.99, 10.0, None, False),
        (10.0, 10.0, None, True),
        (10.0, None, 10.0, True),
        (10.1, None, 10.0, False),
        (3.0, None, None, None),
    ],
)
def test_a_bound_is_reached_or_not(median: float, at_least: float | None, at_most: float | None, verdict: bool | None) -> None:
    figure: dict[str, Any] = {"median": median, "at_least": at_least, "at_most": at_most}
    assert reached(figure) is verdict


def test_only_what_is_marked_is_replaced() -> None:
    document = "a\n<!-- x: made by `make bench` -->\nold\n<!-- end of x -->\nb\n"
    assert page.placed(document, "x", "new\n") == document.replace("old", "new")
    with pytest.raises(ValueError, match="no lines"):
        page.placed(document, "y", "new\n")
