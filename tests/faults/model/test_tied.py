"""Jobs that know each other in more than one way at a time: whatever comes in between, all is sound after each call, and nothing is left."""

from __future__ import annotations

import os
from typing import Any

import pytest
import redis

from tests.faults.model.scripts import Mistake
from tests.faults.model.sharing import SharingMachine
from tests.faults.model.state import INBOX
from tests.faults.model.tied import TiedMachine
from tests.faults.model.walk import finds, machine_on, walk

EXAMPLES = int(os.environ.get("FUSION_TEST_WALKS") or 40)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(3))
def test_jobs_that_know_each_other_are_sound_whatever_comes_in_between(admin: redis.Redis, start: int) -> None:
    walk(admin, start, EXAMPLES, 50, machine=TiedMachine)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(3))
def test_those_that_share_a_call_are_sound_whatever_comes_in_between(admin: redis.Redis, start: int) -> None:
    walk(admin, start, EXAMPLES, 50, machine=SharingMachine)


PLAIN: dict[str, Any] = {
    "parents": [],
    "signs": [],
    "until": "end",
    "batch": "",
    "key": "",
    "discard": False,
    "delay": None,
    "ttl": None,
}


def test_a_unique_job_in_the_inbox_of_a_list_whose_place_a_newer_one_takes_is_passed_over_there(admin: redis.Redis) -> None:
    state = machine_on(admin, TiedMachine)
    rest = {**PLAIN, "unique": "u"}
    state.enqueue(queue=INBOX, number=1, way="skip", more=False, **rest)
    state.enqueue(queue="a", number=0, way="replace", more=False, **rest)
    state.teardown()


def test_those_that_share_a_call_are_claimed_for_it_once(admin: redis.Redis) -> None:
    state = machine_on(admin, SharingMachine)
    for number in (1, 2, 3):
        state.enqueue(queue="a", number=number, unique="", way="skip", more=False, shares=True, **PLAIN)
    state.turn(name="A", kinds=[], slots=1, answered=True, delay=0)
    state.follow(name="A", which=0, most=1, answered=False)
    state.follow(name="A", which=0, most=1, answered=True)
    assert [*state._held["A"]] == ["j1", "j2"]
    state.teardown()


MISTAKES = (
    Mistake("a lost release", ("turn",), "if string.find(tied[key], 'c', 1, true) then do_later('c ' .. id) end", ""),
    Mistake("a unique key that is not given up", ("turn",), "redis.call('ZREM', UNIQUES, name)\nend", "end"),
    Mistake("a parent that is not kept for its children", ("turn",), "redis.call('HSET', key, 'pin', expiry)\nreturn true", "return false"),
    Mistake("a member that is not counted when it ends", ("turn",), "redis.call('SREM', batch_open_key(batch), member)", ""),
    Mistake("a child that does not leave its parents", ("turn",), "if string.find(tied[key], 'p', 1, true) then do_later('p ' .. id) end", ""),
)  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_a_mistake_among_them_is_noticed(admin: redis.Redis, mistake: Mistake) -> None:
    assert finds(admin, mistake, machine=TiedMachine)
