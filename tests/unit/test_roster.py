"""Wildcards as Redis gets them, against `fnmatchcase`."""

from __future__ import annotations

import random
import re
from fnmatch import fnmatchcase
from functools import cache

from fusion.runtime.served_queues import Roster, compiled

NAMES = ["otp", "otp1", "otp-x", "a.b", "axb", "-", "_x", "A", "a", "ab", "abab", "b-a.b", "x_y", "a-b", "aab", "..", "9"]


@cache
def translated(wildcard: str) -> list[re.Pattern[str]]:
    return [re.compile(piece.replace("%z", "").replace("[]", "(?!)").replace("%", "\\")) for piece in compiled(wildcard)]


def matches(wildcard: str, name: str) -> bool:
    """As `wildcards_of` does in Lua: each pattern behind the one before; of what is used, Python's differ by the sign that quotes."""
    at = 0
    for piece in translated(wildcard):
        found = piece.search(name, at)
        if not found:
            return False
        at = found.end()
    return True


def test_they_match_what_fnmatch_matches() -> None:
    chance = random.Random(1)
    pieces = [
        "*",
        "*",
        "?",
        "a",
        "b",
        "-",
        ".",
        "_",
        "otp",
        "[ab]",
        "[!a]",
        "[a-x]",
        "[!0-9]",
        "[",
        "]",
        "[]a]",
        "[a-]",
        "!",
        "[-.]",
    ]
    for _ in range(2_000):
        wildcard = "".join(chance.choice(pieces) for _ in range(chance.randrange(1, 7)))
        for name in NAMES:
            assert matches(wildcard, name) == fnmatchcase(name, wildcard), (wildcard, name)


def test_served_by_a_name() -> None:
    roster = Roster(["a", "b", "c"])
    roster.served("b")
    assert roster.turn == ["c", "a", "b"]
    roster.served("not one of them")
    assert roster.turn == ["c", "a", "b"]


def test_a_list_keeps_its_order_and_a_wildcard_in_it_takes_turns() -> None:
    roster = Roster(["a", "x*", "y*", "b"], listed=True)
    for queue in ("b", "a", "x1", "b"):
        roster.served(queue)
    assert roster.turn == ["a", "x* x1", "y*", "b"]
    roster.served("y7")
    roster.served("x2")
    assert roster.turn == ["a", "x* x2", "y* y7", "b"]
    assert roster.bells == ["a", "x*", "y*", "b"]


def test_served_by_a_wildcard() -> None:
    roster = Roster(["a", "x*", "b"])
    assert roster.turn == ["a", "x*", "b"]
    roster.served("x1")
    assert roster.turn == ["x* x1", "b", "a"]
    assert roster.bells == ["x*", "b", "a"]
    roster.served("b")
    assert roster.turn == ["a", "x*", "b"]
    assert roster.queues == ["a", "b"]
