"""A case measured on both versions, slice by slice in turns."""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.ab.cases import Case, Slice
from benchmarks.ab.ratios import Ratio
from benchmarks.ab.side import Reading, Side
from benchmarks.guard import guarded_home

#: The name of what all processes together spend.
CPU = "CPU ms a job"


@dataclass(frozen=True)
class Script:
    """`calls`: for each job. `us`: microseconds of a call, the median."""

    keys: str
    calls: float
    us: float


@dataclass
class Measured:
    """One version in one case.

    `starts`: slices by the start of the processes they were taken from. `scripts`: the one that costs most first. `modules`: loaded in a
    job's process, 0 where no job ran.
    """

    starts: list[list[Slice]] = field(default_factory=list)
    total: Reading = field(default_factory=Reading)
    scripts: list[Script] = field(default_factory=list)
    modules: int = 0

    def take(self, found: Slice) -> None:
        """Add a slice to those of the current start."""
        self.starts[-1].append(found)
        self.total.add(found.work)

    @property
    def slices(self) -> list[Slice]:
        """All of them, in the order of the pairs."""
        return [found for start in self.starts for found in start]


@dataclass
class Comparison:
    """Both versions in one case."""

    case: Case
    old: Measured = field(default_factory=Measured)
    new: Measured = field(default_factory=Measured)

    def ratios(self) -> dict[str, Ratio]:
        """By what is measured: the case's own unit, and CPU."""
        return {
            self.case.unit: self._ratio(lambda found: found.value, self.case.more_is_better),
            CPU: self._ratio(lambda found: found.cpu, False),
        }

    def medians(self, what: str) -> tuple[float, float]:
        """Of OLD and of NEW, by the same names."""
        old, new = (
            statistics.median(found.cpu if what == CPU else found.value for found in side.slices) for side in (self.old, self.new)
        )
        return old, new

    def _ratio(self, of: Callable[[Slice], float], more_is_better: bool) -> Ratio:
        starts = zip(self.old.starts, self.new.starts, strict=True)
        return Ratio.of([[(of(a), of(b)) for a, b in zip(old, new, strict=True)] for old, new in starts], more_is_better)


def compare(case: Case, old: Path, new: Path, pairs: int, starts: int, seconds: float) -> Comparison:
    """Take the pairs, in each of them either version first by chance.

    All processes are started `starts` times: two of the same code differ for as long as they live, by where their memory lies and which
    core wakes which.
    """
    found = Comparison(case)
    for number in range(starts):
        last = pairs * (number + 1) // starts
        with ExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=guarded_home())))
            sides = [
                (stack.enter_context(Side(path, home / name, case.worker)), measured)
                for path, name, measured in ((old, "old", found.old), (new, "new", found.new))
            ]
            for side, measured in sides:
                case.slice(side, seconds)  # the first one is not like the others
                measured.modules = side.modules
                measured.starts.append([])
            for _ in range(pairs * number // starts, last):
                for side, measured in random.sample(sides, 2):
                    measured.take(case.slice(side, seconds))
            if last == pairs:
                for side, measured in sides:
                    measured.scripts = _scripts(case, side, seconds)
        print(f"{case.title}: {last} of {pairs} pairs", file=sys.stderr)
    return found


def _scripts(case: Case, side: Side, seconds: float) -> list[Script]:
    """Taken in a slice of its own: a server that writes down every call is slower."""
    case.prepare(side, seconds)
    with side.script_times() as times:
        jobs = case.slice(side, seconds).work.jobs
    found = [Script(keys, len(calls) / jobs, statistics.median(calls)) for keys, calls in times.items()]
    return sorted(found, key=lambda script: -script.calls * script.us)
