"""Walks among queues that have limits and rates: more of their changes, and of what ends a job, than the great walk has."""

from __future__ import annotations

import random

import pytest
import redis

from tests.faults.model.machine import StoreMachine
from tests.faults.model.state import Order
from tests.faults.model.walk import machine_on

_ENDS = ["finished", "retry", "failed", "release", "lost", "later"]


def _step(state: StoreMachine, chance: random.Random) -> None:
    kind = chance.choices(
        ["enqueue", "gate", "turn", "pause", "suspend", "time", "watch", "prune", "hear", "resend"],
        [15, 15, 40, 6, 4, 6, 4, 3, 3, 4],
    )[0]
    queue = chance.choice("ab")
    if kind == "enqueue":
        orders = (Order(f"j{chance.randrange(12)}", chance.randrange(3), ttl=chance.choice([None, None, 40])) for _ in range(2))
        state.enqueue(queue, *{order.id: order for order in orders}.values())
    elif kind == "gate":
        state.gate(queue, chance.choice([None, 1, 2]), chance.choice([None, (30_000, 2), (30_000, 1)]))
    elif kind == "turn":
        state.turn(
            chance.choice("AB"),
            *chance.choices(_ENDS, k=chance.randint(0, 2)),
            delay=chance.choice([0, 1]),
            slots=chance.choice([(0,), (0, 0), (2, 0), ()]),
            answered=chance.random() < 0.8,
            queues=chance.choice([("a", "b"), ("a",)]),
        )
    elif kind == "pause":
        state.pause(queue, chance.random() < 0.5)
    elif kind == "suspend":
        state.suspend(chance.random() < 0.5)
    elif kind == "time":
        state.pass_time(chance.choice([1, 999, 31_000, -1, -20_000, 65_000]))
    elif kind == "watch":
        state.watch(1, 5000, alive=chance.choice(["", "A", "AB"]))
    elif kind == "prune":
        state.prune(chance.choice(["", "A"]))
    elif kind == "hear":
        state.hear(queue)
    else:
        state.resend(chance.randrange(30))


@pytest.mark.parametrize("seed", range(4))
def test_queues_with_gates_do_what_the_model_says(admin: redis.Redis, seed: int) -> None:
    chance, state = random.Random(seed), machine_on(admin)
    for _ in range(60):
        _step(state, chance)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(4, 40))
def test_on_other_ways(admin: redis.Redis, seed: int) -> None:
    chance, state = random.Random(seed), machine_on(admin)
    for _ in range(150):
        _step(state, chance)
