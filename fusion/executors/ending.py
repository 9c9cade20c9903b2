"""Ends runs in warm horses: one is killed, or asked to stop, and those that wait behind it in its horse are not harmed."""

from __future__ import annotations

import time
from signal import SIGKILL
from typing import TYPE_CHECKING

from fusion.executors.base import Death, ExecutorListener, KillCause, Run
from fusion.executors.session import EXIT_LIMIT, HorseRun
from fusion.kernel.failpoints import failpoint

if TYPE_CHECKING:
    from fusion.executors.warm import WarmExecutor
    from fusion.executors.warm_horse import WarmForkServerClient, WarmHorse


class Ending:
    """Ends runs of a warm executor.

    First whatever the horse has not read is taken back, then what it says is heard: after that it runs the one job that is first in it, or
    nothing. So a signal can't meet another job than the one it is meant for.
    """

    def __init__(self, executor: WarmExecutor, server: WarmForkServerClient, listener: ExecutorListener) -> None:
        self._executor, self._server, self._listener = executor, server, listener

    def kill(self, run: Run, cause: KillCause) -> None:
        """SIGKILL the horse of a run, if it has not ended by now; what waits behind it is returned."""
        executor, horse = self._executor, self._executor.horse_of(run)
        if horse is None:
            return
        back = executor.recall(horse)
        executor.listen_to(horse)  # it may be over; what is told of it now counts
        run.killed = cause
        first = executor.runs.get(horse.serial)
        if first is run:
            self.strike(horse, first)
        elif any(run is other for other in back):
            if cause in (KillCause.LOST, KillCause.COLD):
                back = [other for other in back if other is not run]
                self._listener.ended(run, Death())
            elif cause is KillCause.TIMEOUT:  # all that time it did not even read it
                run.killed = None
                if not executor.may_import(horse):
                    horse.doomed = True
                    self._server.kill(horse, SIGKILL)
        executor.rest(horse)
        executor.give_back(back, "the process it waited for was killed")

    def strike(self, horse: WarmHorse, run: HorseRun) -> None:
        """SIGKILL a horse for the run that is first in it."""
        horse.doomed = True
        run.gone_by = time.monotonic() + EXIT_LIMIT
        self._server.kill(horse, SIGKILL)

    def stop(self, run: Run) -> None:
        """Ask the task of a run to stop; its horse is gone when the grace is over, and gets no more jobs: what waits in it is returned. A run
        that its horse has not read ends, and the horse keeps the others."""
        executor, horse = self._executor, self._executor.horse_of(run)
        if horse is None or run.stopping or run.killed:
            return
        back = executor.recall(horse)
        executor.listen_to(horse)
        failpoint("stop.taken_back")
        first = executor.runs.get(horse.serial)
        if first is run and not horse.task_over:
            first.stopping = horse.doomed = True
            executor.stop_by(horse, time.monotonic() + self._server.config.grace)
            executor.give_back(back, "the job before it is to stop, with its process")
            return
        others = [other for other in back if other is not run]
        if len(others) < len(back):
            run.killed = KillCause.STOPPED
            self._listener.ended(run, Death())
        self._resume(horse, others)

    def _resume(self, horse: WarmHorse, runs: list[HorseRun]) -> None:
        """Let a horse have again what was taken back from it, in that order."""
        executor = self._executor
        if runs and horse.serial in executor.horses and not (horse.doomed or executor.session.draining):
            if horse.serial not in executor.runs:
                if horse in executor.idle:
                    executor.idle.remove(horse)
                executor.give(horse, runs.pop(0))
            runs = [run for run in runs if not executor.append(horse, run)]
            executor.prefetching.send_to(horse)
        executor.rest(horse)
        executor.give_back(runs, "no room ahead")
