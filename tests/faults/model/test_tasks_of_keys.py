"""Walks among jobs with keys whose task some workers lack, or does not allow: more of both than the great walk has."""

from __future__ import annotations

import random

import pytest
import redis

from tests.faults.model.machine import StoreMachine
from tests.faults.model.scripts import Mistake
from tests.faults.model.state import Order, Wish
from tests.faults.model.walk import machine_on

_LACKS, _HAS = Wish(lacks=True), Wish(("held",))
_ENDS = ["finished", "finished", "held", "limited", "release", "retry", "lost"]


def _step(state: StoreMachine, chance: random.Random) -> None:
    kind = chance.choices(["enqueue", "turn", "time", "promote", "pin", "go_on", "cancel", "clean"], [25, 50, 6, 8, 3, 2, 4, 2])[
        0
    ]
    if kind == "enqueue":
        fair, key = chance.choice([None, None, None, "x"]), chance.choice(["k", "k", "k", "k", "l", None])
        state.enqueue(chance.choice("aab"), Order("j0", chance.choice([0, 1, 1, 1, 2]), fair=fair, key=key))
    elif kind == "turn":
        ends, slots = chance.choices(_ENDS, k=chance.choice([0, 1, 1])), chance.choice([(0,), (0,), (0, 0), ()])
        wish = chance.choice([_LACKS, _LACKS, _HAS, _HAS, Wish()])
        state.turn(chance.choice("AB"), *ends, delay=chance.choice([1, 20]), slots=slots, wish=wish, keep=chance.random() < 0.3)
    elif kind == "time":
        state.pass_time(chance.choice([1, 999, 12_000, 31_000]))
    elif kind == "pin":
        state.pin(chance.choice("kl"), chance.choice([None, 2]))
    elif kind == "go_on":
        state.go_on(chance.choice("kl"))
    elif kind == "cancel":
        state.cancel(chance.randrange(12))
    elif kind == "promote":
        state.promote(100)
    else:
        state.clean()


def _walk(state: StoreMachine, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(80):
        _step(state, chance)


def _walk_on(kind: type[StoreMachine], seeds: range) -> None:
    for seed in seeds:
        _walk(kind(), seed)


@pytest.mark.parametrize("seed", range(12))
def test_slots_go_as_the_model_says(admin: redis.Redis, seed: int) -> None:
    _walk(machine_on(admin), seed)


@pytest.mark.parametrize(
    "mistake",
    [
        Mistake(
            "a key goes on whose task is to stay away",
            ("turn",),
            "redis.call('HSET', limit_key(name), 'held_back', string.format('%d', ms))",
            "",
        ),
        Mistake(
            "a job that waits for its task hands its slot on for ever",
            ("turn",),
            "if not (wanted and name and redis.call('ZSCORE', holders_key(name), id)) then return false end",
            "do return false end",
        ),
        Mistake(
            "a slot that is kept again is kept for the rest of the first time",
            ("turn",),
            "redis.call('ZREM', LIMITS_DUE, name .. ' ' .. id .. ' held')",
            "",
        ),
        Mistake(
            "places in a key are turns of its queue",
            ("turn", "enqueue"),
            " then return score end\nlocal seq, known,",
            " or true then return score end\nlocal seq, known,",
        ),
    ],
    ids=lambda mistake: mistake.name.replace(" ", "-"),
)
def test_a_walk_of_keys_and_tasks_finds_mistakes(admin: redis.Redis, mistake: Mistake) -> None:
    kind = type("StoreMachine", (StoreMachine,), {"conn": admin, "mistakes": (mistake,)})
    with pytest.raises(AssertionError):
        _walk_on(kind, range(60))
