"""Walks of the model's machine by the number that decides all their steps."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import redis
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.faults.model.machine import StoreMachine
from tests.faults.model.scripts import Mistake

# What is found is made as short as it gets, within five minutes. No file of examples: what was found once is a test of its own.
_ALL = (Phase.generate, Phase.shrink)


def machine_on(conn: redis.Redis) -> StoreMachine:
    """To be led by the hand."""
    return type("StoreMachine", (StoreMachine,), {"conn": conn})()


def walk(
    conn: redis.Redis,
    start: int,
    examples: int,
    steps: int,
    machine: type[RuleBasedStateMachine] = StoreMachine,
    phases: Collection[Phase] = _ALL,
    **settled: Any,
) -> None:
    """So many walks of so many steps; AssertionError with a short one that fails."""
    kind = seed(start)(type(machine.__name__, (machine,), {"conn": conn, **settled}))
    chosen = settings(
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=phases,
        max_examples=examples,
        stateful_step_count=steps,
    )
    run_state_machine_as_test(kind, settings=chosen)


def finds(conn: redis.Redis, mistake: Mistake, machine: type[RuleBasedStateMachine] = StoreMachine) -> bool:
    """Whether one of a few walks fails with this mistake in the scripts."""
    for start in (1, 2, 3):
        try:
            walk(conn, start, 60, 50, machine=machine, phases=(Phase.generate,), mistakes=(mistake,))
        except AssertionError as error:
            print(error)
            return True
    return False
