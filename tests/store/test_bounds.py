"""What Python says of bounds that scripts keep is what they keep."""

from __future__ import annotations

import re

import pytest

from fusion.dashboard.pages import trash
from fusion.store.read import audit_inspector
from tools.lua_build import LUA


@pytest.mark.parametrize(
    ("file", "named", "bounds"),
    [
        ("include/trash/trash.lua", "MOST_TRASH, MOST_TRASH_BYTES", (trash.MOST, trash.MOST_BYTES)),
        ("log_audit.lua", "AUDIT_CAP", (audit_inspector.KEPT,)),
    ],
)
def test_they_are_alike(file: str, named: str, bounds: tuple[int, ...]) -> None:
    found = re.search(rf"^local .*{named} = (.*)$", (LUA / file).read_text(), re.MULTILINE)
    assert found is not None
    assert [int(value) for value in found[1].split(", ")[-len(bounds) :]] == list(bounds)
