"""Horses with a run that must end and does not: how long the other runs in it may continue."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from math import inf
from signal import SIGKILL

from fusion.executors.concurrent_horse import ConcurrentForkServerClient, ConcurrentHorse, CrowdRun
from fusion.settings import Settings

#: Seconds in which a condemned horse must answer. If it does not, it is stuck, and so are all its runs.
SIGN = 2.0


class Condemned:
    """Condemns horses, and kills them once their time is over.

    A condemned horse gets no more jobs. Its group is killed when only runs that must end are left, when the `neighbour_grace` is over, or
    when it does not answer within `SIGN`, whichever comes first. It is not killed if all of these runs have ended, unless it is tainted.
    """

    def __init__(self, server: ConcurrentForkServerClient, settings: Settings, log: logging.Logger) -> None:
        self._server, self._grace, self._log = server, settings.neighbour_grace, log

    def condemn(self, horse: ConcurrentHorse, run: CrowdRun | None, why: str) -> None:
        """Condemn a horse because of this run."""
        if horse.condemned or horse.struck:
            return
        now = time.monotonic()
        horse.kill_by, horse.answer_by = now + self._grace, now + SIGN
        horse.say({b"kind": b"ping"})
        others = len(horse.runs) - (run is not None)
        if others:
            about = f"job {run.claimed.id}" if run else "a job that is over"
            text = "%s: %s; its process gets no more jobs, and is killed when the %d others in it have ended, in %g s at most"
            self._log.warning(text, about, "".join(c if c.isprintable() else "?" for c in why[:200]), others, self._grace)

    def judge(self, horse: ConcurrentHorse, now: float) -> None:
        """Kill a condemned horse if it is time, or spare it if the reason is gone."""
        must_end = [run for run in horse.runs.values() if run.overdue]
        if not (must_end or horse.tainted):
            horse.kill_by = horse.answer_by = inf
        elif horse.runs and (len(must_end) == len(horse.runs) or now >= min(horse.kill_by, horse.answer_by)):
            self.strike(horse)

    def strike(self, horse: ConcurrentHorse) -> None:
        """SIGKILL the group of a horse, and expect its death to be reported soon."""
        horse.leaving = horse.leaving or "killed"
        if not horse.struck:
            horse.struck, horse.deadline = True, time.monotonic()
            self._server.kill(horse, SIGKILL)

    def tick(self, horses: Iterable[ConcurrentHorse], now: float) -> float:
        """Judge the condemned horses. Return when the next check is due."""
        soonest = inf
        for horse in horses:
            if horse.condemned and not horse.struck:
                self.judge(horse, now)
            soonest = min(soonest, min((run.due for run in horse.runs.values() if not run.overdue), default=inf))
            if horse.condemned and not horse.struck:
                soonest = min(soonest, horse.kill_by, horse.answer_by)
        return soonest
