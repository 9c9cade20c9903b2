"""Jobs that wait in warm horses behind the ones those run: how many, where, and in which order."""

from __future__ import annotations

import time

from fusion.executors.fork import Run
from fusion.executors.prefetch import MOST
from fusion.executors.warm_horse import WarmHorse
from fusion.executors.warm_pool import SLACK, Pool
from fusion.kernel.failpoints import failpoint
from fusion.store.layout.records import Claimed

#: What a job that does not fit into a horse's socket counts for, in seconds: nothing is claimed ahead for a while.
_TOO_LARGE = 1.0


class WarmExecutor(Pool):
    """A pool whose horses are given short jobs ahead.

    - as many as `PrefetchEstimator` allows, none beyond the jobs a horse may still run, none in a horse with a large or a long job;
    - a job of a higher class goes before those that wait;
    - jobs of lower classes than HIGH wait in so many horses only as may run them: the caller says how many.
    """

    def room(self, horses: int, free: int) -> int:
        depth = self.estimator.depth
        if not depth or not self._open:
            return 0
        short = time.monotonic() - self.estimator.patience
        lanes = [horse for horse in self._lanes(horses) if self.runs[horse.serial].began > short]
        lanes += self._idle[max(0, len(self._idle) - free) :]  # each is about to get a job
        room = sum(max(0, self._depth_of(horse, depth) - len(horse.waiting)) for horse in lanes[:horses])
        return max(0, min(room, self.estimator.most - free))

    def turned(self, seconds: float, jobs: int) -> None:
        self.estimator.turned(seconds, jobs)

    def _lanes(self, horses: int) -> list[WarmHorse]:
        """Up to so many horses at work that jobs may wait in, those first that have some."""
        busy = [horse for serial in self.runs if (horse := self._horses[serial]).ahead]
        if len(busy) > horses:
            busy.sort(key=lambda horse: -len(horse.waiting))
        return busy[:horses]

    def _depth_of(self, horse: WarmHorse, depth: int) -> int:
        """How many jobs may wait in it: no more than it may run after the one it has."""
        return min(depth, self._terms.jobs - horse.done - 1) if self._terms.jobs else depth

    def put_behind(self, claimed: Claimed, limit: float, horses: int) -> Run | None:
        horse = min(self._lanes(horses), key=lambda one: len(one.waiting), default=None)
        if horse is None and any(self._horses[serial].bulky for serial in self.runs):
            self.estimator.saw(_TOO_LARGE)  # a large job has its horse to itself, and the next ones may well be as large
        if horse is None or claimed.fields.get(b"isolate") or len(horse.waiting) >= self._depth_of(horse, MOST):
            return None
        run = Run(claimed, horse, time.monotonic(), limit)
        line = [run]
        if horse.waiting and run.priority > horse.waiting[-1].priority:
            line = sorted([*self._behind(horse), run], key=lambda one: -one.priority)
        placed = 0
        while placed < len(line) and self._append(horse, line[placed]):
            placed += 1
        left = line[placed:]
        self._send_back((other for other in left if other is not run), "no room ahead")
        if run in left:
            self.estimator.saw(_TOO_LARGE)  # so will those behind it be
            return None
        failpoint("ahead.given")
        return run

    def _append(self, horse: WarmHorse, run: Run) -> bool:
        if horse.serial not in self.runs or not horse.push(run, ahead=True):
            return False
        run.horse = horse
        horse.waiting.append(run)
        horse.owe(run, 1)
        now = time.monotonic()
        # The one before it may have become a long one while Redis was asked.
        self.look_at = min(self.look_at, now + self.estimator.patience)
        if horse.told < (by := horse.done_by(now)):
            self._tell(horse, by + SLACK)
        return True
