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

#: Bytes of one read: a horse that says much must not hold up the others.
_READ = 256 * 1024


@dataclass(slots=True, eq=False)
class CrowdRun(Run):
    """A run among others in a horse; None while it waits for one. `due`: monotonic time at which its end is insisted on; `overdue`: that has
    been done, and it still runs; `late_from`: when its task's own time is over, and it has but its grace. `callbacks`: the limits of its
    callbacks of which one may move `due`, once, and `for_hooks` that of its hooks; `task_over`: that has happened. `struck`: its own limit
    was raised in its thread, at a place that nobody chose. `held_up`: another keeps the event loop from coming round to it, and by that many
    seconds its end is insisted on later. `company`: runs that may be in its process, if that is not one for all: 1 if it is to be alone.
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
        """The task has ended, and its hooks or its callback begin. Only what the job's own fields allow, and the hooks that there are, and once: the
        word comes from foreign code."""
        if b"hooks" in frame:
            more, self.for_hooks = self.for_hooks, 0.0
            base = self.due if self.task_over or b"gathered" in self.claimed.fields else now + grace
        else:
            more, self.callbacks = max(self.callbacks, default=0.0), []
            base = now + grace
        if more:
            self.task_over, self.late_from, self.due = True, inf, base + more

    def hold_up(self, seconds: float) -> None:
        """Another keeps it from running: its time does not go on, and it has so many seconds more until its process is given up."""
        if not self.held_up:
            self.held_up, self.due = seconds, self.due + seconds

    def go_on(self, seconds: float) -> None:
        """It was held up for so long, and runs again."""
        if self.held_up:
            self.due += seconds - self.held_up
            self.late_from += seconds
            self.held_up, self.overdue = 0.0, False

    def death(self, exited: HorseExited | None, crowd: int) -> Death:
        """Its end without an outcome, and with it that of so many runs in its horse; None: the fork server's end, or it had no process yet."""
        late = self.overdue and self.killed is None and not self.held_up
        if exited is None or self.horse is None:
            return Death(timed_out=late)
        late = late or (exited.why == "timeout" and time.monotonic() >= self.due and not self.held_up)
        if self.horse.broken:
            if crowd == 1 and self.killed is None:
                self.killed = KillCause.BROKEN
            return Death(exited.status, exited.maxrss, killed=True, suspect=crowd > 1, crowd=crowd)
        ours = exited.why != "-"
        held_up = self.held_up and not self.struck  # what has a thread is not kept from its end by the loop
        if ours and not (late or held_up) and self.killed is None and (self.struck or time.monotonic() >= self.late_from):
            # Not displaced: two that are late together, each of which costs the other its process, would never come to an end.
            late, self.detail = True, "and its grace ended with its process"
        if ours and not late and self.killed is None and not self.horse.alone:
            self.killed = KillCause.DISPLACED
        return Death(
            exited.status, exited.maxrss, killed=ours, timed_out=late, suspect=crowd > 1 and not (ours or late), crowd=crowd
        )


class ConcurrentHorse(Horse):
    """`runs`: what it runs, by execution; `given`: the jobs it has had. `company`: so many suspects at once, and 1 for a job that is to be alone,
    are all that it runs; 0 if it is for all jobs."""

    def __init__(self, server: ForkServerClient, serial: int, end: socket.socket, limit: int) -> None:
        super().__init__(server, serial, end, limit)
        self.runs: dict[bytes, CrowdRun] = {}
        self.given = 0
        self.company = 0
        #: Jobs, one after another, that failed in Fusion's own code.
        self.own_faults = 0
        #: Why it gets no more jobs; empty if it does.
        self.leaving = ""
        #: Condemned: when its group is killed though some in it still run, and by when it has to show that it is not stuck, or that is done at once.
        self.kill_by = self.answer_by = inf
        #: An exception was raised in one of its threads: it may have left a lock taken for ever.
        self.tainted = False
        #: Its group was killed by the worker.
        self.struck = False
        #: The deadline that the fork server knows: a net, no sooner than any run in it has used up its time.
        self.told = inf
        self._unsent: list[bytes] = []

    @property
    def condemned(self) -> bool:
        """True if it is to be killed."""
        return self.kill_by < inf

    @property
    def alone(self) -> bool:
        """It runs one job in all."""
        return self.company == 1

    def room(self, places: int) -> int:
        """Jobs that it can be given."""
        return 0 if self.leaving or self.company else places - len(self.runs)

    def takes_in(self, run: CrowdRun) -> bool:
        """This suspect can join those that it runs."""
        together = len(self.runs) + 1
        return not (self.leaving or self.struck) and 1 < together <= min(self.company, run.company)

    def give(self, run: CrowdRun) -> None:
        """Have the next `send_jobs` send a job."""
        claimed = run.claimed
        execution = claimed.execution_id.encode()
        run.callbacks = [] if CALLBACKS.isdisjoint(claimed.fields) else callback_limits(claimed.fields)
        run.for_hooks = HOOKS_TIMEOUT if self._server.hooked else 0.0
        self.runs[execution] = run
        self.given += 1
        self._unsent.append(pack({b"id": claimed.id.encode(), b"execution_id": execution, **claimed.fields}))

    def send_jobs(self) -> bool:
        """Send the jobs that were given, together, or begin to: see `wants_write`. False if there were none."""
        if not self._unsent:
            return False
        self._out = memoryview(b"".join((self._out, *self._unsent)))
        self._unsent.clear()
        self.flush()
        return True

    def say(self, fields: Mapping[bytes, bytes]) -> None:
        """Send a frame behind what was given."""
        self.send_jobs()
        self.send(fields)

    def receive(self, limit: int = _READ) -> list[dict[bytes, bytes]]:
        """Like its base, but with `callback` frames among the others: each is of a run."""
        return [] if self.at_eof else self._read(limit)


class ConcurrentForkServerClient(ForkServerClient):
    """A fork server whose horses run many jobs at once."""

    def tell_deadline(self, horse: ConcurrentHorse, deadline: float) -> None:
        """When to kill the horse's group, should the worker not do so; `inf` for never."""
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
