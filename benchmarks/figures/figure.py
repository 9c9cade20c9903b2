"""A figure, the row of the table that it belongs to, and what one run has found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.race import Lap

#: Ends the name of a figure that is the ratio of the CPU that a job costs; without it, it is that of the rates.
SPENT = ", CPU a job"


@dataclass(frozen=True)
class Figure:
    """One value with its bound, if it has any: it is to be `at_least` or `at_most` so much."""

    row: str
    what: str
    value: float
    unit: str = "x"
    at_least: float | None = None
    at_most: float | None = None


@dataclass
class Found:
    """What a section has measured: figures, and by the name of a race what each contender did in it."""

    figures: list[Figure] = field(default_factory=list)
    races: dict[str, dict[str, Lap]] = field(default_factory=dict)

    def add(self, other: Found) -> None:
        """Take in another section's."""
        self.figures += other.figures
        self.races |= other.races


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    - `slices`, `seconds`: of each contender in a race.
    - `starts`: jobs whose start is timed.
    - `backlog`: jobs of the long queue, `rounds`: claims of some hundred jobs from it.
    - `names`: of the server with many queues.
    - `drained`: jobs of the LOW drain; `due`: jobs that become due at once.
    - `rest`: seconds of a worker at rest and of ticks.
    """

    slices: int = 8
    seconds: float = 0.6
    starts: int = 200
    backlog: int = 1_000_000
    rounds: int = 20
    names: int = 5_000
    drained: int = 100_000
    due: int = 100_000
    rest: float = 10.0


#: Everything once, to see that it runs.
SMOKE = Effort(slices=1, seconds=0.1, starts=3, backlog=2_000, rounds=2, names=20, drained=3_000, due=500, rest=1.0)

Section = Callable[[Effort], Found]


@dataclass(frozen=True)
class Row:
    """A row of the table: what is measured, what is to be reached and under which conditions."""

    title: str
    target: str
    conditions: str
