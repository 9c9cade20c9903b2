"""The store does what its model does, whatever comes in between: walks of random calls on a real Redis."""

from __future__ import annotations

import os
import random

import pytest
import redis

from tests.faults.model.state import INBOX, START, Order, Wish
from tests.faults.model.walk import machine_on, walk
from tests.kit.length import gate_case, soak_case

SOAK = os.environ.get("FUSION_TEST_SOAK", "") not in ("", "0")


# Longer than Hypothesis takes to make what it found short: cut off in the middle of that, it would say FlakyStrategyDefinition in its place.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", [gate_case(0), 1, soak_case(2), soak_case(3)])
def test_every_call_does_what_the_model_says(admin: redis.Redis, start: int) -> None:
    walk(admin, start, 50, 50)


@pytest.mark.skipif(not SOAK, reason="a long walk: FUSION_TEST_SOAK=1")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_every_call_does_what_the_model_says_on_new_ways(admin: redis.Redis, part: int) -> None:
    start = random.randrange(2**32)
    print(f"part {part}: walk(admin, {start}, 500, 100)")
    walk(admin, start, 500, 100)


# -- found by such walks


def test_emptying_an_inbox_spares_a_job_that_waits_in_another_queue(admin: redis.Redis) -> None:
    state = machine_on(admin)
    state.push("j0")
    state.enqueue("a", Order("j0"))
    state.empty(INBOX)
    state.turn("A")


def test_a_job_that_ran_after_it_was_held_back_has_the_whole_time_when_it_is_held_again(admin: redis.Redis) -> None:
    state = machine_on(admin)
    state.enqueue("a", Order("j0"))
    state.turn("A")
    for kind in ("held", "retry", "held", "later", "held"):
        state.turn("A", kind, slots=())
        state.pass_time(601_000)
        state.promote()
        state.turn("A", wish=Wish(("held",)))
        assert list(state._hands["A"].held) == ["j0"]


def test_a_job_that_was_held_and_given_back_is_held_again_without_an_event(admin: redis.Redis) -> None:
    state = machine_on(admin)
    state.enqueue("a", Order("j0"))
    state.turn("A")
    state.turn("A", "held", wish=Wish(("held",)))
    state.leave("A")
    state.pass_time(3_456_000_000)
    state.watch(1, 5000, alive="")
    state.turn("A", wish=Wish((), lacks=True))
    state.beat("A")
    state.watch(1, 5000, alive="")


def test_a_queue_that_was_empty_for_a_day_is_forgotten_and_its_counters_a_month_later(admin: redis.Redis) -> None:
    state = machine_on(admin)
    state.enqueue("a", Order("j0", result_ttl=0))
    state.turn("A")
    state.turn("A", "finished")
    state.pass_time(65_000)
    for known in ({"a"}, {"a"}, set(), set()):
        state.clean()
        assert (state._model.known_queues, bool(state._model.totals)) == (known, True)
        state.pass_time(86_400_000)
    state.pass_time(30 * 86_400_000)
    state.clean()
    assert not state._model.totals


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_a_job_that_ends_before_its_time_in_a_queue_long_forgotten_is_forgotten_in_turn(admin: redis.Redis, how: str) -> None:
    """It came when its queue was known; without it nobody would look among the queue's jobs that ended."""
    state = machine_on(admin)
    state.enqueue("a", Order("j0", at=START + 40 * 86_400_000))
    for _ in range(2):
        state.clean()
        state.pass_time(2 * 86_400_000)
    state.clean()
    assert not state._model.known_queues
    state.pass_time(36 * 86_400_000)
    getattr(state, how)(0)
    assert state._model.known_queues == {"a"}
    state.pass_time(40 * 86_400_000)
    state.clean()
    assert not state._model.jobs


def test_a_turn_that_fills_its_slots_takes_over_the_rest_of_an_inbox(admin: redis.Redis) -> None:
    state = machine_on(admin)
    state.enqueue("a", Order("j0"), Order("j1"))
    state.enqueue(INBOX, Order("j2", front=True), Order("j3"))
    state.turn("A", slots=(0, 0))
