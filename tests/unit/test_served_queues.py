"""Wildcards as Redis gets them, against `fnmatchcase`."""

from __future__ import annotations

import random
import re
from fnmatch import fnmatchcase
from functools import cache

from fusion.runtime.served_queues import ServedQueues, compiled

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
    served_queues = ServedQueues(["a", "b", "c"])
    served_queues.served("b")
    assert served_queues.turn == ["c", "a", "b"]
    served_queues.served("not one of them")
    assert served_queues.turn == ["c", "a", "b"]


def test_a_list_keeps_its_order_and_a_wildcard_in_it_takes_turns() -> None:
    served_queues = ServedQueues(["a", "x*", "y*", "b"], "listed")
    for queue in ("b", "a", "x1", "b"):
        served_queues.served(queue)
    assert served_queues.turn == ["a", "x* x1", "y*", "b"]
    served_queues.served("y7")
    served_queues.served("x2")
    assert served_queues.turn == ["a", "x* x2", "y* y7", "b"]
    assert served_queues.bells == ["a", "x*", "y*", "b"]


def test_chance_says_which_one_is_next() -> None:
    served_queues = ServedQueues(["a", "b", "x*", "c"], "random")
    seen = set()
    for _ in range(400):
        seen.add(tuple(served_queues.bells))
        served_queues.served("b")
        assert sorted(served_queues.turn) == ["a", "b", "c", "x*"]
    assert len(seen) == 24


def test_served_by_a_wildcard() -> None:
    served_queues = ServedQueues(["a", "x*", "b"])
    assert served_queues.turn == ["a", "x*", "b"]
    served_queues.served("x1")
    assert served_queues.turn == ["x* x1", "b", "a"]
    assert served_queues.bells == ["x*", "b", "a"]
    served_queues.served("b")
    assert served_queues.turn == ["a", "x*", "b"]
    assert served_queues.queues == ["a", "b"]
