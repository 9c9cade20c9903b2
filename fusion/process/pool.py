"""The horses of one fork server that run one job after another: idle ones, those at work, and the jobs that wait in them."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from signal import SIGKILL

from fusion import defaults
from fusion.failpoints import failpoint
from fusion.process import verdict
from fusion.process.ahead import Foresight
from fusion.process.base import Loop
from fusion.process.messages import ForkFailed, ForkServerConfig, HorseExited
from fusion.process.stable import EXIT_LIMIT, FAREWELL, Run, Stable
from fusion.process.warm_horse import WarmHorse, WarmServer
from fusion.store.records import Claimed

#: Seconds by which the fork server's deadline may be too late for a run that is no longer short, and by which it is told too late, so
#: that short ones need not tell it each time.
_LATE, SLACK = 2.0, 1.0
#: An idle horse's deadline is taken from it so many seconds before it strikes.
_NEAR = 2.0
_OF_A_RUN = (b"meta", b"log", b"callback")


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a horse serves: `jobs`, 0 for any number, and bytes of memory at its peak; the milliseconds of work that may wait in it; and
    what is told to the worker.

    `on_back`: a job that no horse has begun, and why it came back. `on_begun`: a job that was claimed ahead runs for longer than a moment.
    """

    jobs: int = defaults.MAX_JOBS_PER_HORSE
    rss: int | None = None
    ahead: int = defaults.CLAIM_AHEAD
    on_back: Callable[[Run, str], None] = lambda run, why: None
    on_begun: Callable[[Claimed], None] = lambda claimed: None


class Pool(Stable):
    """One fork server's lifetime, with warm horses.

    - the first job in a horse is in `runs`; those behind it are taken back when the one before them takes long, dies or is killed;
    - hard deadlines are kept here, exactly, each from the run's own begin; the fork server has a later one, for a worker that is stuck;
    - a horse in which a job left something, or whose time is over, gets no more jobs, and another one takes its place.
    """

    def __init__(
        self,
        config: ForkServerConfig,
        loop: Loop,
        log: logging.Logger,
        *,
        spares: int,
        import_timeout: float,
        on_frame: Callable[[Run, dict[bytes, bytes]], None],
        on_death: Callable[[Run, HorseExited | None], None],
        terms: Terms,
    ) -> None:
        self._terms = terms
        self._horses: dict[int, WarmHorse] = {}
        self._idle: list[WarmHorse] = []  # the one that ran last at the end: its memory is warm, and fresh ones stay fresh
        self._told_of: set[str] = set()
        self.foresight = Foresight(terms.ahead / 1000)
        super().__init__(config, loop, log, spares=spares, import_timeout=import_timeout, on_frame=on_frame, on_death=on_death)

    def _make_server(self, config: ForkServerConfig) -> WarmServer:
        return WarmServer(config)

    # -- jobs

    @property
    def free(self) -> int:
        return len(self._idle) if self._open else 0

    @property
    def waiting(self) -> list[Run]:
        return [run for horse in self._horses.values() for run in horse.waiting]

    def fill(self, now: float) -> None:
        if not self.ready or self.closed or self.retired or now < self._fork_at:
            return
        while len(self._horses) < self._wanted and (horse := self._fork()):
            self._idle.insert(0, horse)

    def _fork(self) -> WarmHorse | None:
        failpoint("fork.ask")
        assert isinstance(self.server, WarmServer)
        try:
            horse = self.server.fork()
        except OSError as error:
            self._back_off(f"no socket for another process: {error.strerror}")
            return None
        self._horses[horse.serial] = horse
        self._loop.watch(horse.fileno(), lambda: self._on_said(horse))
        return horse

    def hand_out(self, claimed: Claimed, limit: float) -> Run | None:
        horse = self._fresh() if claimed.fields.get(b"isolate") else self._idle.pop() if self._idle else None
        if horse is None:
            return None
        run = Run(claimed, horse, time.monotonic(), limit)
        self._give(horse, run)
        return run

    def _fresh(self) -> WarmHorse | None:
        """A horse that has run nothing: what the job needs is a process that nobody used."""
        for horse in self._idle:
            if not horse.done:
                self._idle.remove(horse)
                return horse
        return self._fork()

    def _give(self, horse: WarmHorse, run: Run) -> None:
        """To a horse that has nothing to do."""
        horse.doomed = bool(run.claimed.fields.get(b"isolate"))
        horse.owe(run, 1)
        # As in `ForkServer.run`: the fork server hears of the deadline before the job comes.
        self._begin(horse, run, time.monotonic())
        horse.push(run)
        failpoint("handout.frame")
        if horse.wants_write:
            self._loop.want_write(horse.fileno(), lambda: self._on_writable(run))

    def _begin(self, horse: WarmHorse, run: Run, now: float) -> None:
        run.horse, run.began = horse, now
        horse.deadline = now + run.limit
        horse.expect_callbacks(run.claimed.fields)
        self.runs[horse.serial] = run
        self.look_at = min(self.look_at, now + self.foresight.patience)
        by = horse.done_by(now)
        # Too late by much is put right at once, or, where runs are short as a rule, with the first look at one that is not.
        if horse.told < by or (horse.told > by + _LATE and (horse.told == inf or not self.foresight.depth)):
            self._tell(horse, by + SLACK)

    def _tell(self, horse: WarmHorse, deadline: float) -> None:
        assert isinstance(self.server, WarmServer)
        self.server.tell_deadline(horse, deadline)

    # -- back from a horse

    def _take_back(self, horse: WarmHorse) -> list[Run]:
        """The jobs that this horse has not read, in their order. What it has read stays, the first one in `runs`."""
        head = self.runs.get(horse.serial)
        taken = horse.take_back() if head else set()
        if head is None or not taken:
            return []
        failpoint("ahead.taken_back")
        back, left = [], deque[Run]()
        for run in (head, *horse.waiting):
            if run.claimed.execution_id.encode() in taken:
                back.append(run)
                horse.owe(run, -1)
            else:
                left.append(run)
        horse.waiting = left
        if not left:
            del self.runs[horse.serial]
            horse.deadline = inf
        elif (first := left.popleft()) is not head:
            self._begin(horse, first, time.monotonic())
        return back

    def _send_back(self, runs: Iterable[Run], why: str) -> None:
        for run in runs:
            self._terms.on_back(run, why)

    def _behind(self, horse: WarmHorse) -> list[Run]:
        """Take back what waits behind the horse's first job; that one it keeps, even if it has not read it yet."""
        back = self._take_back(horse)
        if back and horse.serial not in self.runs:
            self._give(horse, back.pop(0))
        return back

    def kill(self, run: Run, why: str) -> None:
        horse = self._horses.get(run.horse.serial)
        if horse is None:
            return
        back = self._take_back(horse)
        self._listen_to(horse)  # it may be over; what is told of it now counts
        run.killed = why
        if self.runs.get(horse.serial) is run:
            self._strike(horse, run)
        elif run in back and why in ("lost", "cold"):
            back.remove(run)
            self._on_death(run, None)
        elif run in back and why == "timeout":  # all that time it did not even read it
            horse.doomed, run.killed = True, ""
            self.server.kill(horse, SIGKILL)
        self._rest(horse)
        self._send_back(back, "the process it waited for was killed")

    def _strike(self, horse: WarmHorse, run: Run) -> None:
        horse.doomed = True
        run.kill_by = time.monotonic() + EXIT_LIMIT
        self.server.kill(horse, SIGKILL)

    def _rest(self, horse: WarmHorse) -> None:
        """A horse that may have nothing to do any more."""
        if horse.serial in self.runs or horse.serial not in self._horses or horse in self._idle:
            return
        if horse.doomed or self.retired:
            self._dismiss(horse)
        else:
            self._idle.append(horse)

    def _dismiss(self, horse: WarmHorse) -> None:
        self._forget(horse)
        horse.finish()
        self._leaving[horse.serial] = (horse, time.monotonic() + FAREWELL)

    def _forget(self, horse: WarmHorse) -> None:
        self._loop.unwatch(horse.fileno())
        self._horses.pop(horse.serial, None)
        if horse in self._idle:
            self._idle.remove(horse)

    # -- what horses say

    def _on_said(self, horse: WarmHorse) -> None:
        self._listen_to(horse)
        if horse.at_eof and horse.serial in self._horses:
            self._loop.unwatch(horse.fileno())

    def _listen_to(self, horse: WarmHorse) -> None:
        self._take_in(horse, horse.receive())
        if horse.broken and not horse.doomed and horse.serial in self._horses:
            self._break_off(horse)

    def _take_in(self, horse: WarmHorse, frames: list[dict[bytes, bytes]]) -> None:
        newest = max((at for at, frame in enumerate(frames) if frame.get(b"kind") not in (b"log", b"idle")), default=-1)
        for at, frame in enumerate(frames):
            run, kind = self.runs.get(horse.serial), frame.get(b"kind")
            if horse.serial not in self._horses or (run is None and kind in _OF_A_RUN):
                return  # nothing counts after an outcome
            its_own = run is not None and frame.get(b"execution_id") == run.claimed.execution_id.encode()
            if kind == b"idle" and not its_own:
                continue  # it has been heard of since
            if run is None or kind == b"idle" or not (kind in _OF_A_RUN or its_own):
                horse.broken, horse.at_eof = "an outcome of no job that it has", True
                if run is not None and horse.done:
                    run.killed = "stolen"
                return
            if kind == b"callback":
                horse.grant_callback(time.monotonic(), self.server.config.grace)
                if horse.told < horse.deadline:
                    self._tell(horse, horse.deadline + SLACK)
            elif kind == b"log" or (kind == b"meta" and at == newest):
                self._on_frame(run, frame)
            elif kind != b"meta":
                self._ended(horse, run, frame)

    def _break_off(self, horse: WarmHorse) -> None:
        """It said what can't be: its task's doing, or an earlier one's."""
        back, run = self._take_back(horse), self.runs.get(horse.serial)
        horse.doomed = True
        if run is not None:
            self._strike(horse, run)
        else:
            self._dismiss(horse)
            self.server.kill(horse, SIGKILL)
        self._send_back(back, "the process it waited for is broken")

    def _ended(self, horse: WarmHorse, run: Run, frame: dict[bytes, bytes]) -> None:
        now = time.monotonic()
        horse.done += 1
        horse.owe(run, -1)
        horse.bulky = False
        self.foresight.saw(verdict.elapsed(frame))
        if horse.waiting:
            self._begin(horse, horse.waiting.popleft(), now)
        else:
            del self.runs[horse.serial]
            horse.deadline = inf
        back: list[Run] = []
        if why := self._why_replace(horse, frame):
            horse.doomed = True
            back = self._take_back(horse)
            self._note(run, why)
        self._on_frame(run, frame)
        self._rest(horse)
        self._send_back(back, "the process it waited for is replaced")

    def _why_replace(self, horse: WarmHorse, frame: dict[bytes, bytes]) -> str:
        terms = self._terms
        if left := frame.get(b"recycle"):
            return left.decode("utf-8", "replace")
        if terms.rss is not None and verdict.peak(frame) > terms.rss:
            return "memory"
        if terms.jobs and horse.done >= terms.jobs:
            return "jobs"
        return ""

    def _note(self, run: Run, left: str) -> None:
        """Once for each kind of leftover: a task that leaves something each time makes a warm process as slow as a fresh one."""
        if left not in ("isolated", "memory", "jobs") and left not in self._told_of and len(self._told_of) < 100:
            self._told_of.add(left)
            about = run.claimed.fields.get(b"description", b"?").decode("utf-8", "replace")
            text = "job %s (%s) left in its process: %s; a fresh one takes its place, as for every job that does so"
            self._log.warning(text, run.claimed.id, "".join(c if c.isprintable() else "?" for c in about[:200]), left)

    # -- what the fork server says

    def _on_exit(self, exited: HorseExited) -> None:
        horse = self._horses.get(exited.serial)
        if horse is None:
            super()._on_exit(exited)
            return
        if not self._bury(horse, exited, "the process it waited for died") and exited.why == "-":
            self._back_off("a warm process died without a job")

    def _on_fork_failed(self, failed: ForkFailed) -> None:
        self._back_off(f"fork failed: {os.strerror(failed.errno)}")
        if horse := self._horses.get(failed.serial):
            self._bury(horse, None, "no process could be forked")

    def _bury(self, horse: WarmHorse, exited: HorseExited | None, why: str) -> bool:
        """See to the jobs of a horse that is no more; whether it had begun one, or was to go anyway."""
        back = self._take_back(horse)
        self._take_in(horse, horse.drain())  # its last words
        self._leaving.pop(horse.serial, None)
        self._forget(horse)
        run = self.runs.pop(horse.serial, None)
        if run is not None:
            self._on_death(run, exited)
        horse.deadline = inf
        for behind in horse.waiting:  # it read them and did not run them: no task that behaves has a part in this
            self._on_death(behind, None)
        horse.waiting.clear()
        horse.close()
        self._send_back(back, why)
        return run is not None or horse.doomed

    # -- time and the end

    def look(self, now: float) -> None:
        """See to the runs that are no longer short, and to deadlines."""
        self.look_at, patience = inf, self.foresight.patience
        for run in list(self.runs.values()):
            horse = self._horses.get(run.horse.serial)
            if horse is None or self.runs.get(horse.serial) is not run:
                continue
            if now < run.began + patience:
                self.look_at = min(self.look_at, run.began + patience)
                continue
            if horse.waiting:
                self.foresight.saw(now - run.began)  # for what this horse can do, whatever the task says it takes
                self._send_back(self._behind(horse), "the job before it takes long")
            if run.claimed.ahead and not run.told:
                run.told = True
                failpoint("ahead.begun")
                self._terms.on_begun(run.claimed)
                horse.ask(run)
            if horse.told > horse.deadline + _LATE:
                self._tell(horse, horse.deadline + SLACK)
            if now < horse.deadline:
                self.look_at = min(self.look_at, horse.deadline)
            elif not run.killed:
                self.kill(run, "timeout")

    def check(self, now: float) -> None:
        super().check(now)
        for horse in self._idle:
            if horse.told < now + _NEAR:
                self._tell(horse, inf)

    def take_back(self, why: str) -> None:
        for horse in list(self._horses.values()):
            if horse.waiting:
                self._send_back(self._behind(horse), why)

    def retire(self) -> None:
        super().retire()
        for horse in list(self._horses.values()):
            if horse.serial in self.runs:
                self._send_back(self._behind(horse), "its worker takes no more jobs")
            elif horse.done:
                self._dismiss(horse)
            else:
                self._forget(horse)
                horse.close()

    def close(self) -> None:
        if self.closed:
            return
        horses = list(self._horses.values())
        for horse in horses:  # as long as they can't read any more
            self._loop.unwatch(horse.fileno())
        self._end_server()
        for horse in horses:
            self._bury(horse, None, "the fork server ended")
        super()._clear()
