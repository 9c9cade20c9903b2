"""Horses in which a run does not end, though it must: how long the runs beside it may go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from math import inf
from signal import SIGKILL

from fusion.executors.concurrent_horse import ConcurrentForkServerClient, ConcurrentHorse, CrowdRun
from fusion.settings import Settings

#: Seconds within which a condemned horse must answer: one that does not is stuck, and so is all that runs in it.
SIGN = 2.0


class Condemned:
    """Condemns horses, and kills those whose time is over.

    A condemned horse gets no more jobs. Its group is killed when nothing runs in it but what must end, when the `neighbour_grace` is over, or
    when it does not answer within `SIGN`, whichever comes first; never if all that had to end has ended, unless it is tainted.
    """

    def __init__(self, server: ConcurrentForkServerClient, settings: Settings, log: logging.Logger) -> None:
        self._server, self._grace, self._log = server, settings.neighbour_grace, log

    def condemn(self, horse: ConcurrentHorse, run: CrowdRun | None, why: str) -> None:
        """Condemn a horse for what this run of it does, or has done."""
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
        """Kill a condemned horse if it is time, or let it go if there is no reason any more."""
        must_end = [run for run in horse.runs.values() if run.overdue]
        if not (must_end or horse.tainted):
            horse.kill_by = horse.answer_by = inf
        elif horse.runs and (len(must_end) == len(horse.runs) or now >= min(horse.kill_by, horse.answer_by)):
            self.strike(horse)

    def strike(self, horse: ConcurrentHorse) -> None:
        """SIGKILL the group of a horse: its death must be reported soon."""
        horse.leaving = horse.leaving or "killed"
        if not horse.struck:
            horse.struck, horse.deadline = True, time.monotonic()
            self._server.kill(horse, SIGKILL)

    def tick(self, horses: Iterable[ConcurrentHorse], now: float) -> float:
        """Judge those that are condemned. Returns when the next look at any of these is due."""
        soonest = inf
        for horse in horses:
            if horse.condemned and not horse.struck:
                self.judge(horse, now)
            soonest = min(soonest, min((run.due for run in horse.runs.values() if not run.overdue), default=inf))
            if horse.condemned and not horse.struck:
                soonest = min(soonest, horse.kill_by, horse.answer_by)
        return soonest
