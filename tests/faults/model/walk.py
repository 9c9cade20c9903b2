"""Walks of the model's machine by the number that decides all their steps."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar
from unittest.mock import patch

import redis
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.faults.model.machine import StoreMachine
from tests.faults.model.scripts import Mistake

Machine = TypeVar("Machine", bound=RuleBasedStateMachine)

# What is found is made as short as it gets, within five minutes. No file of examples: what was found once is a test of its own.
_ALL = (Phase.generate, Phase.shrink)


def machine_on(conn: redis.Redis, machine: type[Machine] = StoreMachine) -> Machine:  # type: ignore[assignment]
    """To be led by the hand."""
    made: Machine = type(machine.__name__, (machine,), {"conn": conn})()
    return made


def walk(
    conn: redis.Redis,
    start: int,
    examples: int,
    steps: int,
    machine: type[RuleBasedStateMachine] = StoreMachine,
    phases: Collection[Phase] = _ALL,
    **settled: Any,
) -> None:
    """This many walks of this many steps; AssertionError with a short one that fails."""
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
    # Else it draws some numbers from those in the source of the modules at hand: the same walk would be another one after another test.
    with patch.object(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None):
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
