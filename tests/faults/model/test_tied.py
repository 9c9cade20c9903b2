"""Jobs that know each other in more than one way at a time: whatever comes in between, all is sound after each call, and nothing is left."""

from __future__ import annotations

import os
from typing import Any

import pytest
import redis

from tests.faults.model.scripts import Mistake
from tests.faults.model.sharing import SharingMachine
from tests.faults.model.state import INBOX
from tests.faults.model.tied import DAY, TiedMachine
from tests.faults.model.walk import machine_on, walk
from tests.faults.model.wander import draw, fault, wander
from tests.kit.length import soaked

EXAMPLES = int(os.environ.get("FUSION_TEST_WALKS") or 40)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(3))
def test_jobs_that_know_each_other_are_sound_whatever_comes_in_between(admin: redis.Redis, start: int) -> None:
    walk(admin, start, EXAMPLES, 50, machine=TiedMachine)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(3))
def test_batched_jobs_are_sound_whatever_happens_in_between(admin: redis.Redis, start: int) -> None:
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


def test_batched_jobs_are_claimed_once(admin: redis.Redis) -> None:
    state = machine_on(admin, SharingMachine)
    for number in (1, 2, 3):
        state.enqueue(queue="a", number=number, unique="", way="skip", more=False, shares=True, **PLAIN)
    state.turn(name="A", kinds=[], slots=1, answered=True, delay=0)
    state.follow(name="A", which=0, most=1, answered=False)
    state.follow(name="A", which=0, most=1, answered=True)
    assert [*state._held["A"]] == ["j1", "j2"]
    state.teardown()


# -- found by such walks

ONE: dict[str, Any] = {**PLAIN, "unique": "", "way": "skip", "more": False}


@pytest.mark.parametrize("gone", ["deleted", "ended"])
def test_children_that_have_not_heard_wait_for_the_next_job_of_their_parents_id(admin: redis.Redis, gone: str) -> None:
    state = machine_on(admin, TiedMachine)
    state.enqueue(queue="a", number=0, **ONE)
    state.enqueue(queue="b", number=2, **{**ONE, "parents": [0], "signs": [""]})
    if gone == "deleted":
        state.empty(queue="a", limit=1)
    else:
        state.person(number=0, what="cancel")
    state.enqueue(queue="a", number=0, **{**ONE, "ttl": 40})
    state.release(limit=50)
    assert admin.hget("rq:job:j2", "status") == b"deferred"
    state.time(ms=31_000, what="promote")
    state.time(ms=31_000, what="expire")
    state.release(limit=50)
    assert admin.hget("rq:job:j2", "reason") == b"its parent j0 was expired"
    state.teardown()


def test_a_job_of_an_id_again_waits_for_none_of_the_former_ones_parents(admin: redis.Redis) -> None:
    state = machine_on(admin, TiedMachine)
    state.enqueue(queue="a", number=7, **ONE)
    state.enqueue(queue="a", number=1, **{**ONE, "parents": [7], "signs": [""]})
    state.person(number=1, what="cancel")
    state.enqueue(queue="b", number=1, **ONE)
    assert not admin.exists("rq:job:j7:children", "rq:job:j1:dependencies", "rq:releasing")
    state.teardown()


def test_the_record_of_one_that_leaves_its_parents_late_is_not_forgotten_before_its_place(admin: redis.Redis) -> None:
    state = machine_on(admin, TiedMachine)
    state.enqueue(queue="a", number=7, **ONE)
    state.enqueue(queue="a", number=1, **{**ONE, "parents": [7], "signs": [""]})
    state.person(number=1, what="cancel")
    state.time(ms=2 * DAY, what="")
    state.release(limit=50)
    assert admin.pttl("rq:job:j1") > 3_500_000
    state.teardown()


def test_deleting_a_parent_removes_a_child_that_knows_its_end(admin: redis.Redis) -> None:
    state = machine_on(admin, TiedMachine)
    state.enqueue(queue="a", number=0, **ONE)
    state.enqueue(queue="b", number=1, **{**ONE, "parents": [0], "signs": ["?"]})
    for what in ("cancel", "delete"):
        state.person(number=0, what=what)
        state.release(limit=50)
    assert not admin.exists("rq:job:j0:children")
    state.teardown()


def test_a_batch_that_is_opened_again_without_the_one_around_it_is_another(admin: redis.Redis) -> None:
    state = machine_on(admin, TiedMachine)
    state.open_batch(batch="z", parent="", calls=False)
    state.open_batch(batch="x", parent="z", calls=False)
    state.time(ms=65_000, what="")
    state.end_batch(batch="x", cancel=False, limit=1)
    state.time(ms=6_000, what="tend_batches")
    state.open_batch(batch="x", parent="", calls=False)
    assert admin.hget("rq:batch:z", "over") == b"1" and not admin.hexists("rq:batch:x", "over")
    state.teardown()


def test_an_inbox_that_is_emptied_some_at_a_time_leads_to_no_job_that_is_gone(admin: redis.Redis) -> None:
    state = machine_on(admin, TiedMachine)
    state.enqueue(queue=INBOX, number=3, **{**ONE, "ttl": 40})
    state.time(ms=65_000, what="expire")
    state.person(number=3, what="requeue")
    state.empty(queue=INBOX, limit=1)
    state.teardown()


@pytest.mark.timeout(3600)
def test_few_jobs_of_many_lives_are_sound_whatever_comes_in_between(admin: redis.Redis) -> None:
    for seed in range(soaked(40, 4_000)):
        wander(admin, seed)


def test_a_job_that_ends_on_a_whole_second_is_not_taken_for_one_of_rq(admin: redis.Redis) -> None:
    state = machine_on(admin, TiedMachine)
    for number in (1, 2):
        state.enqueue(queue="a", number=number, **ONE)
    state._set_clock(-state._now % 1000)
    state.turn(name="A", kinds=[], slots=2, answered=True, delay=0)
    state.turn(name="A", kinds=["finished", "finished"], slots=0, answered=True, delay=0)
    scores = [score for _, score in admin.zrange("rq:finished:a", 0, -1, withscores=True)]
    assert len(set(scores)) == 2 and all(score % 1 for score in scores)
    admin.delete("rq:job:j1", "rq:job:j2")  # the nets under them were first
    state._set_clock(DAY)
    state._broker.clean()
    assert not admin.exists("rq:finished:a")


MISTAKES = (
    Mistake("a lost release", ("turn",), "if string.find(tied[key], 'c', 1, true) then do_later('c ' .. id) end", ""),
    Mistake("a unique key that is not given up", ("turn",), "redis.call('ZREM', UNIQUES, name)\nend", "end"),
    Mistake("a parent that is not kept for its children", ("turn",), "redis.call('HSET', key, 'pin', expiry)\nreturn true", "return false"),
    Mistake("a member that is not counted when it ends", ("turn",), "redis.call('SREM', batch_open_key(batch), member)", ""),
    Mistake("a child that does not leave its parents", ("turn",), "if string.find(tied[key], 'p', 1, true) then do_later('p ' .. id) end", ""),
    Mistake("children of a former life", ("enqueue",), "if redis.call('EXISTS', children_key(id)) == 1 then tied[key] = 'c' end", ""),
    Mistake("parents of a former life", ("enqueue",), "unpack(left)) end\nredis.call('PEXPIRE'", "id) end\nredis.call('PEXPIRE'"),
)  # fmt: skip


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_a_mistake_among_them_is_noticed(admin: redis.Redis, mistake: Mistake) -> None:
    assert any(fault(admin, draw(seed, 60, 5), (mistake,)) for seed in range(60))
