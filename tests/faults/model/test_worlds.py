"""The fence and the table of resends in every order: claims, outcomes, beats, losses, and late copies of turns."""

from __future__ import annotations

import os

import pytest
import redis

from tests.faults.model.scripts import Mistake
from tests.faults.model.test_mistakes import MISTAKES
from tests.faults.model.worlds import Explorer

#: Calls one after the other. Each more makes it four times as long.
DEPTH = 7 if os.environ.get("FUSION_TEST_SOAK", "") not in ("", "0") else 5
_OF_THE_FENCE = [mistake for mistake in MISTAKES if mistake.of_the_fence]


@pytest.mark.timeout(3600 if DEPTH > 5 else 240)
def test_in_every_order_only_the_holder_counts_and_a_resend_answers_as_before(admin: redis.Redis) -> None:
    explorer = Explorer(admin)
    worlds = explorer.explore(DEPTH)
    print(f"{worlds} states of {explorer.steps} calls, {DEPTH} deep")
    assert worlds > 1000


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mistake", _OF_THE_FENCE, ids=lambda mistake: mistake.name.replace(" ", "-"))
def test_a_mistake_shows_in_one_of_them(admin: redis.Redis, mistake: Mistake) -> None:
    with pytest.raises(AssertionError):
        Explorer(admin, (mistake,)).explore(5)
