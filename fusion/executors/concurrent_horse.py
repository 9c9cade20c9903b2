"""The worker's end of a horse that runs many jobs at once, and the runs in it."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from fusion.execution.callbacks import CALLBACKS, HOOKS_TIMEOUT, callback_limits
from fusion.execution.frames import pack
from fusion.executors.base import Death, KillCause, Run
from fusion.forkserver.client import ForkServerClient
from fusion.forkserver.horse_link import Horse
from fusion.forkserver.messages import HorseExited

#: Bytes of one read: a horse that sends much must not delay the others.
_READ = 256 * 1024


@dataclass(slots=True, eq=False)
class CrowdRun(Run):
    """A run among others in a horse.

    - `horse`: None while it waits for one;
    - `due`: monotonic time at which its end is enforced; `overdue`: that was done, and it still runs;
    - `late_from`: when its task's own time is over and only its grace is left;
    - `callbacks`: limits of its callbacks, one of which may move `due`, once; `for_hooks`: that of its hooks; `task_over`: that was done;
    - `struck`: an exception for its own limit was raised in its thread, at an arbitrary place;
    - `held_up`: another run blocks the event loop, and its end is enforced that many seconds later;
    - `company`: runs that may share its process, if that is not one for all jobs: 1 if it must be alone.
    """

    horse: ConcurrentHorse | None = None
    due: float = inf
    overdue: bool = False
    late_from: float = inf
    callbacks: list[float] = field(default_factory=list)
    for_hooks: float = 0.0
    task_over: bool = False
    struck: bool = False
    held_up: float = 0.0
    company: int = 0

    @property
    def must_end(self) -> float:
        """Monotonic time of the signal that ends it; inf if none was sent."""
        return self.horse.deadline if self.horse else inf

    def grant_callback(self, frame: Mapping[bytes, bytes], now: float, grace: float) -> None:
        """Extend the deadline, as the task has ended and its hooks or its callback begin.

        It is extended once, and only as the job's fields and the existing hooks allow: the frame comes from a process with foreign code.
        """
        if b"hooks" in frame:
            more, self.for_hooks = self.for_hooks, 0.0
            base = self.due if self.task_over or b"gathered" in self.claimed.fields else now + grace
        else:
            more, self.callbacks = max(self.callbacks, default=0.0), []
            base = now + grace
        if more:
            self.task_over, self.late_from, self.due = True, inf, base + more

    def hold_up(self, seconds: float) -> None:
        """Pause its time, as another run blocks it. Its process is given up `seconds` later."""
        if not self.held_up:
            self.held_up, self.due = seconds, self.due + seconds

    def go_on(self, seconds: float) -> None:
        """Resume its time after it was blocked for `seconds`."""
        if self.held_up:
            self.due += seconds - self.held_up
            self.late_from += seconds
            self.held_up, self.overdue = 0.0, False

    def death(self, exited: HorseExited | None, crowd: int) -> Death:
        """Return its end without an outcome. `exited`: None if the fork server ended, or it had no process yet. `crowd`: runs that ended
        together."""
        late = self.overdue and self.killed is None and not self.held_up
        if exited is None or self.horse is None:
            return Death(timed_out=late)
        late = late or (exited.why == "timeout" and time.monotonic() >= self.due and not self.held_up)
        if self.horse.broken:
            if crowd == 1 and self.killed is None:
                self.killed = KillCause.BROKEN
            return Death(exited.status, exited.maxrss, killed=True, suspect=crowd > 1, crowd=crowd)
        ours = exited.why != "-"
        held_up = self.held_up and not self.struck  # a run in a thread can end although the loop is blocked
        if ours and not (late or held_up) and self.killed is None and (self.struck or time.monotonic() >= self.late_from):
            # Not displaced: two late runs that cost each other the process would repeat that for ever.
            late, self.detail = True, "and its grace ended with its process"
        if ours and not late and self.killed is None and not self.horse.alone:
            self.killed = KillCause.DISPLACED
        return Death(
            exited.status, exited.maxrss, killed=ours, timed_out=late, suspect=crowd > 1 and not (ours or late), crowd=crowd
        )


class ConcurrentHorse(Horse):
    """A horse that runs many jobs at once.

    `runs`: its runs, by execution. `given`: number of jobs it got. `company`: number of suspects that it runs, 1 for a job that must be
    alone;
    0 if it is for all jobs.
    """

    def __init__(self, server: ForkServerClient, serial: int, end: socket.socket, limit: int) -> None:
        super().__init__(server, serial, end, limit)
        self.runs: dict[bytes, CrowdRun] = {}
        self.given = 0
        self.company = 0
        #: Jobs in a row that failed in Fusion's own code.
        self.own_faults = 0
        #: Why it gets no more jobs; empty if it gets some.
        self.leaving = ""
        #: If condemned: when its group is killed although runs are left, and by when it must answer, or be killed at once.
        self.kill_by = self.answer_by = inf
        #: True after an exception was raised in one of its threads: that may have left a lock taken for ever.
        self.tainted = False
        #: True once the worker has killed its group.
        self.struck = False
        #: The deadline that the fork server has, as a safety net: never before the time of each run in it is over.
        self.told = inf
        self._jobs: list[bytes] = []

    @property
    def condemned(self) -> bool:
        """True if it is to be killed."""
        return self.kill_by < inf

    @property
    def alone(self) -> bool:
        """True if it runs only one job."""
        return self.company == 1

    def room(self, places: int) -> int:
        """Return how many more jobs it can take."""
        return 0 if self.leaving or self.company else places - len(self.runs)

    def takes_in(self, run: CrowdRun) -> bool:
        """Return True if this suspect can join the ones that it runs."""
        together = len(self.runs) + 1
        return not (self.leaving or self.struck) and 1 < together <= min(self.company, run.company)

    def give(self, run: CrowdRun) -> None:
        """Queue a job for the next `send_jobs`."""
        claimed = run.claimed
        execution = claimed.execution_id.encode()
        run.callbacks = [] if CALLBACKS.isdisjoint(claimed.fields) else callback_limits(claimed.fields)
        run.for_hooks = HOOKS_TIMEOUT if self._server.hooked else 0.0
        self.runs[execution] = run
        self.given += 1
        self._jobs.append(pack({b"id": claimed.id.encode(), b"execution_id": execution, **claimed.fields}))

    def send_jobs(self) -> bool:
        """Send the queued jobs together, or begin to: see `unsent`. False if there were none."""
        if not self._jobs:
            return False
        self.unsent = memoryview(b"".join((self.unsent, *self._jobs)))
        self._jobs.clear()
        self.flush()
        return True

    def say(self, fields: Mapping[bytes, bytes]) -> None:
        """Send a frame behind the queued jobs."""
        self.send_jobs()
        self.send(fields)

    def receive(self, limit: int = _READ) -> list[dict[bytes, bytes]]:
        """Receive frames as the base class does, including `callback` frames: each belongs to one run."""
        return [] if self.at_eof else self._read(limit)


class ConcurrentForkServerClient(ForkServerClient):
    """A fork server whose horses run many jobs at once."""

    def tell_deadline(self, horse: ConcurrentHorse, deadline: float) -> None:
        """Set when the fork server kills the horse's group if the worker does not; `inf` for never."""
        horse.told = deadline
        self._say(f"RUN {horse.serial} {deadline!r}")

    def fork(self) -> ConcurrentHorse:
        """Ask for a horse."""
        self._serial += 1
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        horse = ConcurrentHorse(self, self._serial, ours, self._limit)
        self._say(f"FORK {horse.serial}", theirs)
        return horse
