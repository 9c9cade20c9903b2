"""A case: a script at its largest call."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import redis

#: Prepares what the call meets, yields, and makes the call or calls, which are counted.
Steps = Callable[[redis.Redis], Generator[None, None, None]]


@dataclass(frozen=True)
class Case:
    """`scripts`: those that the case is about; it fails if one is not called."""

    name: str
    scripts: frozenset[str]
    steps: Steps


#: All cases by name, in the order in which they are written.
CASES: dict[str, Case] = {}


def case(*scripts: str) -> Callable[[Steps], Steps]:
    """Make a case of a function; its name is the case's, with spaces in place of underscores."""

    def note(steps: Steps) -> Steps:
        name = steps.__name__.strip("_").replace("_", " ")
        if name in CASES:
            raise ValueError(f"two cases are called {name}")
        CASES[name] = Case(name, frozenset(scripts), steps)
        return steps

    return note
