"""Jobs that wait in warm horses behind the ones those run, so that a horse need not wait for the worker and Redis between two short ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fusion.executors.base import Run
from fusion.executors.session import HorseRun
from fusion.kernel import defaults
from fusion.kernel.failpoints import failpoint
from fusion.store.layout.records import Claimed

if TYPE_CHECKING:
    from fusion.executors.warm import WarmExecutor
    from fusion.executors.warm_horse import WarmHorse

#: Most jobs that wait in one horse.
MOST = 16
#: Seconds after which a run is no longer a short one: nothing waits behind it, and Redis is told that it began.
LOOK, _LONGEST_LOOK = 0.01, 0.05
#: Jobs seen before anything is foreseen.
_SEEN = 8
#: Weights of a run that took longer than expected, and of one that did not.
_UP, _DOWN = 0.5, 0.05
#: Least seconds a job counts for.
_LEAST = 1e-5
#: Weight of the latest turn; and jobs that any turn may take, as with fewer each pays for too much of it.
_NEW, _FEW = 0.1, 4
#: A run is let go on for so many turns before it counts as long: on a busy machine it did not have all that time for itself.
_TURNS = 3
#: What a job that does not fit into a horse's socket counts for, in seconds: nothing is claimed ahead for a while.
_TOO_LARGE = 1.0


class PrefetchEstimator:
    """Expects of the next jobs what the last ones took: longer ones are believed fast, shorter ones slowly.

    `budget`: seconds of work that may wait in a horse. A turn with Redis should take no longer either, as a job that comes meanwhile, of
    whatever class, waits for its end.
    """

    def __init__(self, budget: float = defaults.CLAIM_AHEAD / 1000) -> None:
        self._budget = budget
        self._seen = 0
        self._expected = 0.0
        self._turn = self._moved = 0.0
        #: Seconds after which a run is a long one.
        self.patience = LOOK

    def saw(self, seconds: float) -> None:
        """Record that a job took so many seconds."""
        self._seen += 1
        off = seconds - self._expected
        self._expected += off * (_UP if off > 0 else _DOWN)

    def exchanged(self, seconds: float, jobs: int) -> None:
        """Record one exchange with Redis: how long it took, delivery to processes included, and how many jobs it committed or claimed."""
        self._turn += (seconds - self._turn) * _NEW
        self._moved += (jobs - self._moved) * _NEW
        self.patience = min(max(LOOK, _TURNS * self._turn), _LONGEST_LOOK)

    @property
    def depth(self) -> int:
        """Jobs that may wait behind the one a horse runs."""
        return min(MOST, int(self._budget / max(self._expected, _LEAST))) if self._seen >= _SEEN else 0

    @property
    def most(self) -> int:
        """Jobs that one turn may take."""
        return max(_FEW, int(self._budget * self._moved / self._turn)) if self._turn else MOST


class Prefetch:
    """Lets short jobs wait in the busy horses of a warm executor, so that a horse has the next one at hand.

    - as many as `PrefetchEstimator` allows, none beyond the jobs a horse may still run, none in a horse with a large or a long job;
    - a job of a higher class goes before those that wait;
    - jobs of lower classes than HIGH wait in so many lanes (horses) only as may run them: the caller says how many.
    """

    def __init__(self, executor: WarmExecutor, budget: float, jobs: int) -> None:
        """`budget`: seconds of work that may wait in a horse; `jobs`: how many a horse may run in all, 0 for any number."""
        self._executor, self._jobs = executor, jobs
        self.estimator = PrefetchEstimator(budget)
        self._given: list[WarmHorse] = []

    @property
    def queued(self) -> list[Run]:
        """Jobs that are in a horse and have not begun."""
        return [run for horse in self._executor.horses.values() for run in horse.waiting]

    def room(self, lanes: int, free: int) -> int:
        """The number of jobs that may be prefetched. `lanes`: processes that may queue jobs; `free`: how many of them are idle and get a
        first job anyway."""
        depth, executor = self.estimator.depth, self._executor
        if not depth or not executor.session.open:
            return 0
        short = time.monotonic() - self.estimator.patience
        horses = [horse for horse in self._lanes(lanes) if executor.runs[horse.serial].began > short]
        horses += executor.idle[max(0, len(executor.idle) - free) :]  # each is about to get a job
        room = sum(max(0, self._depth_of(horse, depth) - len(horse.waiting)) for horse in horses[:lanes])
        return max(0, min(room, self.estimator.most - free))

    def _lanes(self, lanes: int) -> list[WarmHorse]:
        """Up to so many busy horses that jobs may wait in, those first that have some."""
        executor = self._executor
        busy = [horse for serial in executor.runs if (horse := executor.horses[serial]).ahead]
        if len(busy) > lanes:
            busy.sort(key=lambda horse: -len(horse.waiting))
        return busy[:lanes]

    def _depth_of(self, horse: WarmHorse, depth: int) -> int:
        """The number of jobs that may wait in it: no more than it may run after the one it has."""
        return min(depth, self._jobs - horse.done - 1) if self._jobs else depth

    def add(self, claimed: Claimed, limit: float, lanes: int) -> Run | None:
        """Let a job wait behind another, where there is `room`; None if it can't. It is sent by `send`."""
        executor = self._executor
        horse = min(self._lanes(lanes), key=lambda one: len(one.waiting), default=None)
        if horse is None and any(executor.horses[serial].bulky for serial in executor.runs):
            self.estimator.saw(_TOO_LARGE)  # a large job has its horse to itself, and the next ones may well be as large
        if horse is None or claimed.fields.get(b"isolate") or len(horse.waiting) >= self._depth_of(horse, MOST):
            return None
        run = HorseRun(claimed, limit, time.monotonic(), horse=horse)
        line = [run]
        if horse.waiting and run.priority > horse.waiting[-1].priority:
            line = sorted([*executor.recall_behind(horse), run], key=lambda one: -one.priority)
        placed = 0
        while placed < len(line) and executor.append(horse, line[placed]):
            placed += 1
        left = line[placed:]
        executor.give_back((other for other in left if other is not run), "no room ahead")
        if run in left:
            self.estimator.saw(_TOO_LARGE)  # so will those behind it be
            return None
        self.send_to(horse)
        return run

    def send_to(self, horse: WarmHorse) -> None:
        """Have the next `send` send what was appended to this horse."""
        if horse not in self._given:
            self._given.append(horse)

    def send(self) -> None:
        """Send the jobs that were added since, each horse's together. Those that its socket does not take are returned."""
        given, self._given = self._given, []
        for horse in given:
            left = horse.send_ahead()
            failpoint("ahead.given")
            if left:
                self.estimator.saw(_TOO_LARGE)
                self._executor.give_back(left, "no room ahead")

    def recall(self, why: str) -> None:
        """Return every job that has not begun."""
        executor = self._executor
        for horse in list(executor.horses.values()):
            if horse.waiting:
                executor.give_back(executor.recall_behind(horse), why)
