"""Arguments that came back as they were shown: what was left is what it was, and a mask that stands for nothing is refused."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusion.enqueue.unmasking import restored
from fusion.exceptions import OptionError
from fusion.jobs.masked import masked_arguments

TAGGED = {"__fusion__": ["datetime", "2026-01-31T09:30:00Z"]}
TUPLE = {"__fusion__": ["tuple", ["a", {"password": "geheim"}]]}
SECRETS: list[Any] = [
    "+4915112345678",
    "a long secret word",
    42,
    -1.5,
    True,
    None,
    "",
    "ab",
    "2026-01-31",
    {"password": "geheim", "n": 12345},
    TAGGED,
    TUPLE,
]


def shown(args: list[Any], kwargs: dict[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(masked_arguments(json.dumps(["tasks.f", None, args, kwargs or {}]).encode()))
    return found


def back(args: list[Any], edited: list[Any]) -> Any:
    return restored("args", edited, shown(args)["args"], args)


_LEAVES = st.none() | st.booleans() | st.integers() | st.text(string.printable, max_size=20) | st.sampled_from(SECRETS)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text("abcxyz123", max_size=6), inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=40)
@given(st.lists(_VALUES, max_size=5))
def test_what_is_left_as_it_was_is_what_it_was(args: list[Any]) -> None:
    assert back(args, shown(args)["args"]) == args


@settings(max_examples=40)
@given(st.lists(_VALUES, min_size=1, max_size=5))
def test_one_changed_leaves_the_others(args: list[Any]) -> None:
    edited = [*shown(args)["args"]]
    if len(edited) != len(args):
        return  # so much that the end is a number
    edited[0] = "new"
    assert back(args, edited) == ["new", *args[1:]]


def test_parts_of_objects_lists_and_tagged_values() -> None:
    args = [{"to": "+4915112345678", "text": "Hi", "deep": [{"token": "abcdef", "n": 7}]}, TUPLE, TAGGED]
    edited = shown(args)["args"]
    edited[0]["text"], edited[0]["deep"][0]["n"], edited[0]["more"] = "Bye", 8, 1
    edited[1][0] = "b"
    assert back(args, edited) == [
        {"to": "+4915112345678", "text": "Bye", "deep": [{"token": "abcdef", "n": 8}], "more": 1},
        {"__fusion__": ["tuple", ["b", {"password": "geheim"}]]},
        TAGGED,
    ]
    del edited[0]["to"]
    assert "to" not in back(args, edited)[0]


def test_the_end_that_is_shown_as_a_number_stays() -> None:
    args = [list(range(500)), {f"k{n:03}x": n for n in range(0)}]
    edited = shown(args)["args"]
    assert edited[0][-1] == "... 300 more"
    edited[0][0] = "first"
    assert back(args, edited)[0] == ["first", *range(1, 500)]


@pytest.mark.parametrize(
    "edited",
    [
        ["***"],
        ["+49***"],
        ["+*************", "+*************"],
        [{"password": "***"}],
        [{"x": ["**"]}],
        ["... 5 more"],
        ["[datetime]"],
        ["+4*"],
        [{"__fusion__": ["dataclass", ["os", {}]]}],
        [{"***": 1}],
    ],
)
def test_a_mask_that_stands_for_nothing_is_refused(edited: list[Any]) -> None:
    with pytest.raises(OptionError) as caught:
        back(["+4915112345678"], edited)
    assert caught.value.name.startswith("args")


def test_names_that_look_alike_are_not_told_apart() -> None:
    args = [{"4915112345678": 1, "4915112345679": 2}]
    edited = shown(args)["args"]
    assert back(args, edited) == args
    with pytest.raises(OptionError, match="look alike"):
        back(args, [{**edited[0], "new": 3}])
