"""Every action of the dashboard is pressed in a browser by some test of tests/browser."""

from __future__ import annotations

import ast

from fusion.dashboard.page import PageAction
from fusion.dashboard.pages import ALL
from tests.architecture.source import ROOT, strings
from tests.browser.actions import ELSEWHERE, ROWS

ACTIONS = {one.path for one in ALL if isinstance(one, PageAction)}


def test_every_action_is_pressed_and_no_other() -> None:
    pressed = {row.action for row in ROWS} | ELSEWHERE.keys()
    assert ACTIONS - pressed == set(), "tests/browser/actions.py needs a row for these"
    assert pressed - ACTIONS == set(), "rows of actions that there are no more"


def test_every_button_that_another_test_presses_exists() -> None:
    for action, (where, words) in ELSEWHERE.items():
        module, _, test = where.partition("::")
        tree = ast.parse((ROOT / "tests" / "browser" / module).read_text())
        found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == test]
        assert found and words in [text for _, text in strings(found[0])], f"{where} presses no {words!r}: {action}"


def test_each_row_presses_its_own_button_of_its_page() -> None:
    assert len({(row.action, row.page, row.press) for row in ROWS}) == len(ROWS)
