"""Wildcards as Redis gets them, against `fnmatchcase`."""

from __future__ import annotations

import random
import re
from collections import Counter
from fnmatch import fnmatchcase
from functools import cache

import pytest

from fusion.runtime.served_queues import ServedQueues, compiled
from fusion.settings.readers import Invalid, weights

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


WEIGHTS = {"a": 5, "b": 3, "x*": 2, "c": 1}


@pytest.mark.parametrize("slots", [1, 4, 16])
@pytest.mark.parametrize("urgent", ["", "a", "c"], ids=["one class", "urgent jobs of a", "urgent jobs of c"])
def test_over_10_000_claims_each_share_is_its_weight(slots: int, urgent: str) -> None:
    served_queues = ServedQueues(WEIGHTS, "weighted", [f"{name}={weight}" for name, weight in WEIGHTS.items()])
    given, chance = Counter[str](), random.Random(1)
    while given.total() < 10_000:
        first, *_ = served_queues.turn  # all have jobs, and a turn takes all of its jobs from the first
        name = first.split()[0]
        left = slots
        if urgent and chance.random() < 0.5:
            served_queues.served(urgent, b"2")
            left -= 1
        for n in range(left):
            given[name] += 1
            served_queues.served(f"x{n}" if name == "x*" else name, b"1")
    for name, weight in WEIGHTS.items():
        assert abs(given[name] / given.total() * sum(WEIGHTS.values()) / weight - 1) < 0.03, (name, given)


@pytest.mark.parametrize("before", [[], [b"2"]], ids=["", "after an urgent one"])
def test_shares_hold_from_the_first_job_on(before: list[bytes]) -> None:
    served_queues = ServedQueues(["a", "b"], "weighted", ["b=4"])
    for urgent in before:
        served_queues.served("a", urgent)
    given = Counter[str]()
    for _ in range(20):
        (name, *_) = served_queues.turn
        served_queues.served(name, b"1")
        given[name] += 1
    assert given == {"a": 4, "b": 16}


@pytest.mark.parametrize("priority", [b"9" * 5000, b"9" * 4000, b"1000", b"-1", b"NaN", b"\xff", b""])
def test_a_priority_that_another_program_wrote_ends_no_worker_and_takes_no_memory(priority: bytes) -> None:
    """It stands in the job's record, whatever its place in the queue."""
    served_queues = ServedQueues(["a", "b"], "weighted", ["b=4"])
    for _ in range(300):
        served_queues.served("a", priority)
    assert served_queues.turn == ["b", "a"]
    assert served_queues._shares is not None
    assert {*served_queues._shares._places} <= {0, 255}


def test_a_queue_without_jobs_saves_up_nothing() -> None:
    served_queues = ServedQueues(["a", "b", "idle"], "weighted", ["a=2"])
    for _ in range(300):
        served_queues.served(next(name for name in served_queues.turn if name != "idle"), b"1")
    given = Counter[str]()
    for _ in range(40):
        (name, *_) = served_queues.turn
        served_queues.served(name, b"1")
        given[name] += 1
    assert given == {"a": 20, "b": 10, "idle": 10}


@pytest.mark.parametrize("given", ["sms", "sms=", "=3", "sms=0", "sms=1001", "sms=1.5", "sms=٣", "a=1,a=2", 3])
def test_a_weight_that_is_none_is_refused(given: object) -> None:
    with pytest.raises(Invalid):
        weights(given)
    assert weights("sms=3, mail*=1") == ("sms=3", "mail*=1")
