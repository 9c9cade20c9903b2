"""Warm horses: processes that run one job after another."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from math import inf
from signal import SIGKILL

from fusion.executors import readings
from fusion.executors.base import Capacity, Death, KillCause, Run
from fusion.executors.prefetch import MOST, PrefetchEstimator
from fusion.executors.session import EXIT_LIMIT, ExecutorContext, HorsePool, HorseRun, ServerSession
from fusion.executors.warm_horse import WarmForkServerClient, WarmHorse
from fusion.forkserver.messages import ForkFailed, HorseExited
from fusion.kernel.failpoints import failpoint
from fusion.store.layout.records import Claimed

#: Seconds by which the fork server's deadline may be late for a run that is no longer short; and that each deadline sent to it has to
#: spare, so that short runs need not send one each time.
_LATE, SLACK = 2.0, 1.0
#: Seconds before an idle horse's deadline at which the deadline is removed.
_NEAR = 2.0
#: Seconds that a job counts which does not fit into a horse's socket, so that nothing is prefetched for a while.
_TOO_LARGE = 1.0
#: Frames that must not be skipped, and all that a run sends before its outcome.
_LINES = (b"log", b"output", b"report", b"member", b"stands", b"telemetry")
_OF_A_RUN = (*_LINES, b"meta", b"callback")
#: Most kinds that are logged; and reasons to replace a process that are no leftovers.
_MOST_KINDS, _NONE = 100, ("isolated", "memory", "jobs")


class WarmExecutor:
    """Gives each job to an idle horse, or lets it wait in a busy one (see `PrefetchEstimator`).

    - at most as many wait as the estimator allows and as the horse may still run; none in a horse with a large or a long job;
    - a job of a higher class goes before waiting ones; jobs below HIGH wait only in as many lanes (horses) as may run them;
    - the first job in a horse is in `runs`; those behind it are recalled when it takes long, dies or is killed;
    - hard deadlines are enforced here, exactly, from each run's own begin; the fork server has a later one, in case the worker is stuck;
    - a horse in which a job left something, or whose time is over, gets no more jobs and is replaced.
    """

    def __init__(self, server: WarmForkServerClient, context: ExecutorContext) -> None:
        """Start the fork server; OSError if that fails."""
        settings = self._settings = context.settings
        self._loop, self._listener = context.loop, context.listener
        self._wanted = settings.slots + 1
        #: The first run of each busy horse, by the horse's serial number.
        self.runs: dict[int, HorseRun] = {}
        #: Idle horses, the one that ran last at the end: its memory is warm, and fresh horses stay fresh.
        self.idle: list[WarmHorse] = []
        self.estimator = PrefetchEstimator(settings.claim_ahead / 1000)
        #: Horses that were given jobs behind others, which `send_queued` sends.
        self._given: list[WarmHorse] = []
        self._leftovers = LeftoverLog(context.log)
        self._runs_at = inf
        self._server = server
        self.session = ServerSession(server, context, self, self._wanted)
        self.horses = HorsePool(self.session, context.loop, server.fork, self.listen_to)

    # -- jobs

    def room(self) -> Capacity:
        """Return how many jobs can be started now, and how many slots are in use."""
        return Capacity(len(self.idle) if self.session.open else 0, len(self.runs))

    @property
    def next_at(self) -> float:
        """Monotonic time of the next check; inf at rest."""
        soonest = self.session.next_at(at_rest=not self.runs, short=len(self.horses) < self._wanted)
        if self.runs:
            return min(soonest, self._runs_at)
        return min(soonest, max(self.session.check_at, min((horse.told for horse in self.idle), default=inf) - _NEAR))

    def fill(self, now: float) -> bool:
        """Fork horses ahead. True if a job can be started now, and none could before."""
        if len(self.horses) >= self._wanted or not self.session.may_fork(now):
            return False
        had_room = self.session.open and bool(self.idle)
        while len(self.horses) < self._wanted and (horse := self.horses.fork()):
            self.idle.insert(0, horse)
        return not had_room and self.session.open and bool(self.idle)

    def expect(self) -> None:
        """Wake the horse that gets the next job."""
        if self.idle:
            self.idle[-1].wake()

    def start(self, claimed: Claimed, limit: float) -> HorseRun | None:
        """Give a job to an idle horse, or with `isolate` to a fresh one. None if there is none."""
        horse = self._fresh() if claimed.fields.get(b"isolate") else self.idle.pop() if self.idle else None
        if horse is None:
            return None
        run = HorseRun(claimed, limit, time.monotonic(), horse=horse)
        self.give(horse, run)
        return run

    def _fresh(self) -> WarmHorse | None:
        """Return a horse that has run nothing yet."""
        for horse in self.idle:
            if not horse.done:
                self.idle.remove(horse)
                return horse
        return self.horses.fork()

    def give(self, horse: WarmHorse, run: HorseRun) -> None:
        """Send a job to a horse that has nothing to do."""
        horse.doomed = bool(run.claimed.fields.get(b"isolate"))
        horse.owe(run, 1)
        # As in `ForkServerClient.run`: the fork server gets the deadline before the job comes.
        self._begin(horse, run, time.monotonic())
        horse.push(run)
        failpoint("handout.frame")
        self.session.finish_sending(horse)

    def _begin(self, horse: WarmHorse, run: HorseRun, now: float) -> None:
        run.horse, run.began, run.peak_before = horse, now, horse.peak
        horse.deadline = now + run.limit
        horse.expect_callbacks(run.claimed.fields)
        self.runs[horse.serial] = run
        estimator = self.estimator
        self._runs_at = min(self._runs_at, now + estimator.patience)
        by = horse.done_by(now)
        # A deadline that is much too late is corrected at once; where runs are short as a rule, at the first check of a longer one.
        if horse.told < by or (horse.told > by + _LATE and (horse.told == inf or not estimator.depth)):
            self._server.tell_deadline(horse, by + SLACK)

    def _next(self, horse: WarmHorse, now: float) -> None:
        """Begin the next run of a horse whose first run is over or recalled, if one waits."""
        if horse.waiting:
            self._begin(horse, horse.waiting.popleft(), now)
        else:
            self.runs.pop(horse.serial, None)
            horse.deadline = inf

    def stop_by(self, horse: WarmHorse, deadline: float) -> None:
        """Ask the task that a horse runs to stop. The fork server kills the horse at the deadline at the latest."""
        self._server.stop(horse, deadline)
        horse.told = horse.deadline
        self._runs_at = min(self._runs_at, horse.deadline)

    def append(self, horse: WarmHorse, run: HorseRun) -> bool:
        """Queue a run in a busy horse. False if it is no longer busy, or its socket is full."""
        if horse.serial not in self.runs or not horse.push(run, ahead=True):
            return False
        run.horse = horse
        horse.waiting.append(run)
        horse.owe(run, 1)
        now = time.monotonic()
        # The run before it may have become a long one during the turn.
        self._runs_at = min(self._runs_at, now + self.estimator.patience)
        if horse.told < (by := horse.done_by(now)):
            self._server.tell_deadline(horse, by + SLACK)
        return True

    # -- jobs that wait behind others

    @property
    def queued(self) -> list[Run]:
        """Return the jobs that are in a horse and have not begun."""
        return [run for horse in self.horses.values() for run in horse.waiting]

    def prefetch_room(self, lanes: int, free: int) -> int:
        """Return how many jobs may be prefetched.

        `lanes`: processes that may queue jobs. `free`: idle ones among them, which get a first job anyway.
        """
        depth = self.estimator.depth
        if not depth or not self.session.open:
            return 0
        short = time.monotonic() - self.estimator.patience
        horses = [horse for horse in self._lanes(lanes) if self.runs[horse.serial].began > short]
        horses += self.idle[max(0, len(self.idle) - free) :]  # each is about to get a job
        room = sum(max(0, self._depth_of(horse, depth) - len(horse.waiting)) for horse in horses[:lanes])
        return max(0, min(room, self.estimator.most - free))

    def _lanes(self, lanes: int) -> list[WarmHorse]:
        """Return up to `lanes` busy horses in which jobs may wait, those with waiting jobs first."""
        busy = [horse for serial in self.runs if (horse := self.horses[serial]).ahead]
        if len(busy) > lanes:
            busy.sort(key=lambda horse: -len(horse.waiting))
        return busy[:lanes]

    def _depth_of(self, horse: WarmHorse, depth: int) -> int:
        """Return how many jobs may wait in it: at most as many as it may run after its present one."""
        most = self._settings.max_jobs_per_horse
        return min(depth, most - horse.done - 1) if most else depth

    def prefetch(self, claimed: Claimed, limit: float, lanes: int) -> Run | None:
        """Queue a job behind another, where there is `prefetch_room`; None if there is none. `send_queued` sends it."""
        horse = self._lane_for(claimed, self._lanes(lanes))
        if horse is None and any(self.horses[serial].bulky for serial in self.runs):
            self.estimator.saw(_TOO_LARGE)  # a large job has its horse to itself, and the next jobs may be as large
        if horse is None or claimed.fields.get(b"isolate") or len(horse.waiting) >= self._depth_of(horse, MOST):
            return None
        run = HorseRun(claimed, limit, time.monotonic(), horse=horse)
        line = [run]
        if horse.waiting and run.priority > horse.waiting[-1].priority and not claimed.predecessor:
            line = sorted([*self.recall_behind(horse), run], key=lambda one: -one.priority)
        placed = 0
        while placed < len(line) and self.append(horse, line[placed]):
            placed += 1
        left = line[placed:]
        self.give_back((other for other in left if other is not run), "no room ahead")
        if run in left:
            self.estimator.saw(_TOO_LARGE)  # the jobs behind it are probably large too
            return None
        self._send_to(horse)
        return run

    def _lane_for(self, claimed: Claimed, lanes: list[WarmHorse]) -> WarmHorse | None:
        """Return the busy process in which a job is to wait: with its predecessor, if it has one; None if that is in none of them.

        Otherwise where others of its concurrency key wait, so that they keep their order; else the one with the fewest waiting jobs.
        """
        if before := claimed.predecessor:
            for horse in lanes:
                if any(run.claimed.execution_id == before for run in (self.runs[horse.serial], *horse.waiting)):
                    return horse
            return None
        if key := claimed.fields.get(b"concurrency_key"):
            for horse in lanes:
                if any(run.claimed.fields.get(b"concurrency_key") == key for run in horse.waiting):
                    return horse
        return min(lanes, key=lambda one: len(one.waiting), default=None)

    def _send_to(self, horse: WarmHorse) -> None:
        """Have the next `send_queued` send the jobs appended to this horse."""
        if horse not in self._given:
            self._given.append(horse)

    def send_queued(self) -> None:
        """Send the jobs added since the last call, those of a horse together. Give back those that its socket does not take."""
        given, self._given = self._given, []
        for horse in given:
            left = horse.send_ahead()
            failpoint("ahead.given")
            if left:
                self.estimator.saw(_TOO_LARGE)
                self.give_back(left, "no room ahead")

    def return_queued(self, why: str) -> None:
        """Give back all jobs that have not begun."""
        for horse in list(self.horses.values()):
            if horse.waiting:
                self.give_back(self.recall_behind(horse), why)

    def exchanged(self, seconds: float, jobs: int) -> None:
        """Record one exchange with Redis, see `PrefetchEstimator.exchanged`."""
        self.estimator.exchanged(seconds, jobs)

    # -- back from a horse

    def recall(self, horse: WarmHorse) -> list[HorseRun]:
        """Take back the jobs that this horse has not read, in their order. It keeps those that it has read, the first one in `runs`."""
        head = self.runs.get(horse.serial)
        back = horse.recall(head) if head else []
        if back:
            failpoint("ahead.taken_back")
            if back[0] is head:
                self._next(horse, time.monotonic())
        return back

    def recall_behind(self, horse: WarmHorse) -> list[HorseRun]:
        """Take back the jobs behind the horse's first one. It keeps the first one, even if it has not read it yet."""
        back = self.recall(horse)
        if back and horse.serial not in self.runs:
            self.give(horse, back.pop(0))
        return back

    def give_back(self, runs: Iterable[Run], why: str) -> None:
        """Report runs that no horse has any more as given back."""
        for run in runs:
            self._listener.returned(run, why)

    def tell(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        """Send a frame to the process of a run that waits for it. Recall the jobs behind it first, as the process reads only up to the next
        job."""
        if (horse := self.horse_of(run)) and self.runs.get(horse.serial) is run:
            self.give_back(self.recall_behind(horse), "the job before it waits for word")
            horse.say(frame)

    def pid(self, run: Run) -> int | None:
        """Return the pid of a run that is first in its horse. The first call only requests it; a later one returns it."""
        return horse.known_pid() if (horse := self.horse_of(run)) else None

    def may_import(self, horse: WarmHorse) -> bool:
        """Return True while a horse that reads no job may still be importing: a replacement would have to import too."""
        late = bool(self._server.config.by_horses) and not horse.done
        return late and time.monotonic() < horse.born + self._settings.import_timeout

    def horse_of(self, run: Run) -> WarmHorse | None:
        """Return the horse that has a run; None if none has it."""
        for horse in self.horses.values():
            if self.runs.get(horse.serial) is run or run in horse.waiting:
                return horse
        return None

    def rest(self, horse: WarmHorse) -> None:
        """Keep, or dismiss, a horse that may have no more work."""
        if horse.serial in self.runs or horse.serial not in self.horses or horse in self.idle:
            return
        if horse.doomed or self.session.draining:
            self._dismiss(horse)
        else:
            self.idle.append(horse)

    def _dismiss(self, horse: WarmHorse) -> None:
        self._forget(horse)
        horse.finish()
        self.session.leave(horse)

    def _forget(self, horse: WarmHorse) -> None:
        self.horses.forget(horse)
        if horse in self.idle:
            self.idle.remove(horse)

    # -- ending runs
    # First take back the jobs that the horse has not read, then read its frames. After that it runs its first job or nothing, so a signal
    # can't hit another job.

    def kill(self, run: Run, cause: KillCause) -> None:
        """SIGKILL the horse of a run that is not over, and give back the runs behind it."""
        horse = self.horse_of(run)
        if horse is None:
            return
        back = self.recall(horse)
        self.listen_to(horse)  # it may be over: an outcome that it has sent counts
        run.killed = cause
        first = self.runs.get(horse.serial)
        if first is run:
            self._strike(horse, first)
        elif any(run is other for other in back):
            if cause in (KillCause.LOST, KillCause.COLD):
                back = [other for other in back if other is not run]
                self._listener.ended(run, Death())
            elif cause is KillCause.TIMEOUT:  # it never even read the job in all that time
                run.killed = None
                if not self.may_import(horse):
                    horse.doomed = True
                    self._server.kill(horse, SIGKILL)
        self.rest(horse)
        self.give_back(back, "the process it waited for was killed")

    def _strike(self, horse: WarmHorse, run: HorseRun) -> None:
        """SIGKILL a horse because of its first run."""
        horse.doomed = True
        run.gone_by = time.monotonic() + EXIT_LIMIT
        self._server.kill(horse, SIGKILL)

    def stop(self, run: Run) -> None:
        """Ask the task of a run to stop.

        Its horse gets no more jobs and is killed after the grace; the runs that wait in it are given back. If the horse has not read the
        run, only that run ends, and the horse keeps the others.
        """
        horse = self.horse_of(run)
        if horse is None or run.stopping or run.killed:
            return
        back = self.recall(horse)
        self.listen_to(horse)
        failpoint("stop.taken_back")
        first = self.runs.get(horse.serial)
        if first is run and not horse.task_over:
            first.stopping = horse.doomed = True
            self.stop_by(horse, time.monotonic() + self._server.config.grace)
            self.give_back(back, "the job before it is to stop, with its process")
            return
        others = [other for other in back if other is not run]
        if len(others) < len(back):
            run.killed = KillCause.STOPPED
            self._listener.ended(run, Death())
        self._resume(horse, others)

    def _resume(self, horse: WarmHorse, runs: list[HorseRun]) -> None:
        """Send a horse again the runs that were taken back from it, in that order."""
        if runs and horse.serial in self.horses and not (horse.doomed or self.session.draining):
            if horse.serial not in self.runs:
                if horse in self.idle:
                    self.idle.remove(horse)
                self.give(horse, runs.pop(0))
            runs = [run for run in runs if not self.append(horse, run)]
            self._send_to(horse)
        self.rest(horse)
        self.give_back(runs, "no room ahead")

    # -- frames of horses

    def listen_to(self, horse: WarmHorse) -> None:
        """Read and handle the frames that a horse has sent."""
        self._take_in(horse, horse.receive())
        if horse.broken and not horse.doomed and horse.serial in self.horses:
            self._break_off(horse)

    def _take_in(self, horse: WarmHorse, frames: list[dict[bytes, bytes]]) -> None:
        for at, frame in enumerate(frames):
            run, kind = self.runs.get(horse.serial), frame.get(b"kind")
            if horse.serial not in self.horses or (run is None and kind in _OF_A_RUN):
                return  # nothing counts after an outcome
            its_own = run is not None and frame.get(b"execution_id") == run.claimed.execution_id.encode()
            if kind == b"idle" and not its_own:
                continue  # outdated: the outcome of that run came first
            if run is None or kind == b"idle" or not (kind in _OF_A_RUN or its_own):
                horse.broken, horse.at_eof = "an outcome of no job that it has", True
                if run is not None and horse.done:
                    run.killed = KillCause.STOLEN
                return
            if kind == b"callback":
                horse.grant_callback(frame, time.monotonic())
                if horse.told < horse.deadline:
                    self._server.tell_deadline(horse, horse.deadline + SLACK)
            elif kind in _LINES:
                self._listener.frame(run, frame)
            elif kind == b"skipped" and run.claimed.predecessor:
                self._skip(horse, run)
            elif kind != b"meta":
                self._finish(horse, run, frame)
            elif not any(later.get(b"kind") not in (*_LINES, b"idle") for later in frames[at + 1 :]):
                self._listener.frame(run, frame)

    def _break_off(self, horse: WarmHorse) -> None:
        """Kill a process that sent an invalid frame: this task, or an earlier one, wrote to its socket."""
        back, run = self.recall(horse), self.runs.get(horse.serial)
        horse.doomed = True
        if run is not None:
            self._strike(horse, run)
        else:
            self._dismiss(horse)
            self._server.kill(horse, SIGKILL)
        self.give_back(back, "the process it waited for is broken")

    def _skip(self, horse: WarmHorse, run: HorseRun) -> None:
        """Give back a run that its horse did not begin, as its predecessor did not finish there."""
        horse.owe(run, -1)
        self._next(horse, time.monotonic())
        self.rest(horse)
        self.give_back([run], "the job before it did not finish")

    def _finish(self, horse: WarmHorse, run: HorseRun, frame: dict[bytes, bytes]) -> None:
        """Finish a run with its outcome. The next one in the horse begins, unless the horse is to be replaced."""
        now = time.monotonic()
        horse.done += 1
        horse.owe(run, -1)
        horse.bulky = False
        horse.peak = frame.get(b"maxrss", horse.peak)
        self.estimator.saw(readings.elapsed(frame))
        self._next(horse, now)
        back: list[HorseRun] = []
        if why := horse.why_replace(frame, self._settings.max_jobs_per_horse, self._settings.max_horse_rss):
            horse.doomed = True
            back = self.recall(horse)
            self._leftovers.found(run, why)
        self._listener.frame(run, frame)
        self.rest(horse)
        self.give_back(back, "the process it waited for is replaced")

    # -- deaths

    def exited(self, exited: HorseExited) -> None:
        """Handle the death of a horse that was not dismissed."""
        horse = self.horses.get(exited.serial)
        if horse and not self._die(horse, exited, "the process it waited for died") and exited.why == "-":
            self.session.back_off("a warm process died without a job")

    def fork_failed(self, failed: ForkFailed) -> None:
        """Handle a failed fork: give back the job of the horse, if it has one."""
        if horse := self.horses.get(failed.serial):
            self._die(horse, None, "no process could be forked")

    def _die(self, horse: WarmHorse, exited: HorseExited | None, why: str) -> bool:
        """End the jobs of a dead horse. True if it had begun one, or was to end anyway."""
        back = self.recall(horse)
        self._take_in(horse, horse.drain())  # its last frames
        self.session.forget(horse)
        self._forget(horse)
        run = self.runs.pop(horse.serial, None)
        if run is not None:
            self._listener.ended(run, run.death(exited))
        horse.deadline = inf
        for behind in horse.waiting:  # it read them but did not run them: no normal task does that
            self._listener.ended(behind, behind.death(None))
        horse.waiting.clear()
        horse.close()
        self.give_back(back, why)
        return run is not None or horse.doomed

    # -- time and the end

    def tick(self, now: float) -> None:
        """Check runs that are no longer short, and kill what is overdue."""
        if now >= self.session.check_at:
            self.session.check(now, self.runs.values())
            for horse in self.idle:
                if horse.told < now + _NEAR:
                    self._server.tell_deadline(horse, inf)
        if now >= self._runs_at:
            self._check_runs(now)

    def _check_runs(self, now: float) -> None:
        self._runs_at, estimator = inf, self.estimator
        patience = estimator.patience
        for run in list(self.runs.values()):
            horse = self.horses.get(run.horse.serial)
            if horse is None or self.runs.get(horse.serial) is not run:
                continue
            if now < run.began + patience:
                self._runs_at = min(self._runs_at, run.began + patience)
                continue
            if horse.waiting:
                estimator.saw(now - run.began)  # by this worker's clock, whatever time the task reports
                self.give_back(self.recall_behind(horse), "the job before it takes long")
            if run.claimed.ahead and not run.told:
                run.told = True
                failpoint("ahead.begun")
                self._listener.begun(run)
                horse.ask(run)
            if horse.told > horse.deadline + _LATE:
                self._server.tell_deadline(horse, horse.deadline + SLACK)
            if now < horse.deadline:
                self._runs_at = min(self._runs_at, horse.deadline)
            elif not run.killed:
                self.kill(run, KillCause.TIMEOUT)

    def drain(self) -> None:
        """Take no more jobs: give back waiting runs, notify running ones, and end idle horses."""
        self.session.drain()
        for horse in list(self.horses.values()):
            if horse.serial in self.runs:
                self.give_back(self.recall_behind(horse), "its worker takes no more jobs")
                horse.doomed = True
                horse.finish()  # a job that checks for it gives way
            elif horse.done:
                self._dismiss(horse)
            else:
                self._forget(horse)
                horse.close()

    def close(self) -> None:
        """End the fork server and all its horses. Each run without an outcome ends or is given back."""
        if self.session.closed:
            return
        horses = list(self.horses.values())
        for horse in horses:  # now, while they can't read any more
            self._loop.unwatch(horse.fileno())
        self.session.end()
        for horse in horses:
            self._die(horse, None, "the fork server ended")


class LeftoverLog:
    """Warns once of each kind of leftover: a task that always leaves something makes warm processes as slow as fresh ones."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told_of: set[str] = set()

    def found(self, run: Run, left: str) -> None:
        """Log that a job's process is replaced for this reason."""
        if left in _NONE or left in self._told_of or len(self._told_of) >= _MOST_KINDS:
            return
        self._told_of.add(left)
        about = run.claimed.fields.get(b"description", b"?").decode("utf-8", "replace")
        text = "job %s (%s) left in its process: %s; a fresh one takes its place, as for every job that does so"
        self._log.warning(text, run.claimed.id, "".join(c if c.isprintable() else "?" for c in about[:200]), left)
