from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.store.layout.score import MAX_PRIORITY, check_priority, priority_of, score_of

SEQS = st.integers(-(2**43) + 1, 2**43 - 1)
PRIORITIES = st.integers(0, MAX_PRIORITY)


@given(PRIORITIES, SEQS)
def test_the_whole_part_is_the_priority(priority: int, seq: int) -> None:
    assert priority_of(score_of(priority, seq)) == priority


@given(PRIORITIES, SEQS)
def test_each_arrival_has_a_place_of_its_own_behind_the_one_before(priority: int, seq: int) -> None:
    assert score_of(priority, seq) > score_of(priority, seq + 1)


@given(PRIORITIES, SEQS, SEQS)
def test_a_higher_priority_comes_first_whenever_it_came(priority: int, first: int, second: int) -> None:
    assert score_of(priority + 1, first) > score_of(priority, second)


def test_exact_up_to_the_last_arrival() -> None:
    for start in (0, 2**42, 2**43 - 1001, -(2**43) + 1):
        scores = [score_of(MAX_PRIORITY, start + i) for i in range(1000)]
        assert all(a > b for a, b in pairwise(scores))
        shuffled = random.Random(1).sample(scores, len(scores))
        assert sorted((float(repr(score)) for score in shuffled), reverse=True) == scores, "17 digits carry it"


def test_fourteen_digits_would_not_do() -> None:
    """Why a score never passes through Lua's tostring."""
    assert len({f"{score_of(2, seq):.14g}" for seq in range(1000)}) < 1000


@pytest.mark.parametrize("priority", [0, 1, 2, 255])
def test_legal_priorities(priority: int) -> None:
    assert check_priority(priority) == priority


@pytest.mark.parametrize(("name", "number"), [("low", 0), ("moderate", 1), ("high", 2), ("High", 2), ("LOW", 0), ("mOdErAtE", 1)])
def test_priorities_have_names(name: str, number: int) -> None:
    assert check_priority(name) == number


@pytest.mark.parametrize("priority", [-1, 256, 1.0, "1", "", "highest", " high", True, None, [], b"high"])
def test_illegal_priorities(priority: object) -> None:
    with pytest.raises(ValueError, match="from 0 to 255"):
        check_priority(priority)
