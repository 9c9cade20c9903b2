"""One fork server's lifetime, as the executors see it: its messages, failed forks, horses on their way out, and its end."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from signal import SIGKILL
from typing import Protocol, TypeVar

from fusion.executors.base import Death, ExecutorListener, KillCause, Run
from fusion.forkserver.client import ForkServerClient
from fusion.forkserver.horse_link import Horse
from fusion.forkserver.messages import Alike, ForkFailed, HorseExited, ImportFailed, Ready, ServerClosed, Tainted
from fusion.kernel.failpoints import failpoint
from fusion.kernel.linux import processes
from fusion.runtime.backoff import Backoff
from fusion.runtime.loop import Loop
from fusion.settings import Settings
from fusion.store.layout.records import Claimed

#: Seconds after an outcome within which the horse must be gone by itself (its atexit handlers have 2 s).
FAREWELL = 3.0
#: Seconds within which a killed horse's EXIT must come; else the fork server is stuck and is killed itself.
EXIT_LIMIT = 2.0
#: Seconds between two checks for what is overdue.
CHECK_INTERVAL = 0.25
#: Seconds by which a check comes late after a rest, or because this process stood still (SIGSTOP, a frozen machine).
_LATE = 1.0
#: First and longest pause in seconds after a failed fork.
_FORK_PAUSE, _LONGEST_FORK_PAUSE = 0.1, 5.0

AnyHorse = TypeVar("AnyHorse", bound=Horse)


@dataclass(frozen=True, slots=True)
class ExecutorContext:
    """Parts of its worker that an executor uses. `import_timeout`: seconds in which a fork server must have loaded the task modules."""

    settings: Settings
    loop: Loop
    log: logging.Logger
    listener: ExecutorListener
    import_timeout: float


@dataclass(slots=True, eq=False)
class HorseRun(Run):
    """A run in a horse. `gone_by`: monotonic time by which the fork server must have reported its death, once it was killed."""

    horse: Horse = field(kw_only=True)
    gone_by: float = inf

    @property
    def must_end(self) -> float:
        """Monotonic time of the signal that ends it; inf for none."""
        return min(self.horse.deadline, self.gone_by)

    def death(self, exited: HorseExited | None) -> Death:
        """Its end without an outcome; None: the fork server's end, or nothing was forked."""
        if exited is None:
            return Death(timed_out=time.monotonic() >= self.horse.deadline)
        if self.horse.broken and self.killed is None:
            self.killed = KillCause.BROKEN
        return Death(exited.status, exited.maxrss, exited.why == "killed", exited.why in ("timeout", "stopped"))


class Mortal(Protocol):
    """A run that may have to be killed."""

    claimed: Claimed

    @property
    def must_end(self) -> float:
        """Monotonic time of the signal that ends it; inf for none."""


class HorseOwner(Protocol):
    """The executor that a session belongs to."""

    def exited(self, exited: HorseExited) -> None:
        """A horse of the owner's is dead."""

    def fork_failed(self, failed: ForkFailed) -> None:
        """A horse of the owner's has no process."""

    def close(self) -> None:
        """End the session: its fork server died, or is stuck and has been killed."""


class ServerSession:
    """Starts one fork server, hears it until it ends, and kills it if it does not report what it must.

    - `ready`: its imports are done; `announced`: it had room for a job since; `closed`: no horse of it runs any more;
    - `draining`: no more jobs go to it;
    - `tainted`, `import_failed`: why it ended, if it said so;
    - `leaving`: horses that have nothing to do any more, each with the monotonic time by which it must have exited.
    """

    def __init__(self, server: ForkServerClient, context: ExecutorContext, owner: HorseOwner, horses: int) -> None:
        """Start it; OSError if that fails. `horses`: how many the owner keeps."""
        self.server = server
        self._loop, self._log, self._owner, self._horses = context.loop, context.log, owner, horses
        self.ready = self.announced = self.closed = self.draining = False
        self.tainted: Tainted | None = None
        self.import_failed: ImportFailed | None = None
        self.leaving: dict[int, tuple[Horse, float]] = {}
        self.check_at = self.fork_at = 0.0
        self.backoff = Backoff(_FORK_PAUSE, _LONGEST_FORK_PAUSE)
        self._ready_by = time.monotonic() + context.import_timeout
        server.start()
        self._control_fd = server.fileno()
        self._loop.watch(self._control_fd, self._on_control)

    @property
    def open(self) -> bool:
        """True if horses may get jobs: not while too many that should be gone are not."""
        return self.ready and not self.closed and not self.draining and len(self.leaving) <= 2 * self._horses + 4

    def next_at(self, *, at_rest: bool, short: bool) -> float:
        """Monotonic time of the next check or fork; inf for never. `at_rest`: nothing runs; `short`: the owner lacks a horse."""
        soonest = inf if at_rest and self.ready and not self.leaving else self.check_at
        return min(soonest, self.fork_at) if short and self.ready and not self.draining else soonest

    def may_fork(self, now: float) -> bool:
        """True if horses may be forked ahead."""
        return self.ready and not self.closed and not self.draining and now >= self.fork_at

    def fork(self, ask: Callable[[], AnyHorse]) -> AnyHorse | None:
        """Get a horse by `ask`; None, and a pause, if this process is out of descriptors."""
        failpoint("fork.ask")
        try:
            return ask()
        except OSError as error:
            self.back_off(f"no socket for another process: {error.strerror}")
            return None

    def back_off(self, why: str) -> None:
        """Fork nothing ahead for a while, twice as long as the last time."""
        pause = self.backoff.next()
        self._log.error("%s; next try in %.1f s", why, pause)
        self.fork_at = time.monotonic() + pause

    def leave(self, horse: Horse) -> None:
        """The horse has nothing to do any more: it is killed if it does not exit."""
        self.leaving[horse.serial] = (horse, time.monotonic() + FAREWELL)

    def finish_sending(self, horse: Horse) -> None:
        """Have the loop send what the horse's socket would not take at once."""
        if horse.wants_write:
            self._loop.want_write(horse.fileno(), lambda: self._on_writable(horse))

    def _on_writable(self, horse: Horse) -> None:
        horse.flush()
        if not horse.wants_write:
            self._loop.want_write(horse.fileno(), None)

    def flush(self) -> None:
        """Have the loop finish what the fork server's socket would not take at once."""
        if self.server.wants_write:
            self._loop.want_write(self.server.fileno(), self._on_control_writable)

    def _on_control_writable(self) -> None:
        self.server.flush()
        if not self.server.wants_write:
            self._loop.want_write(self.server.fileno(), None)

    def _on_control(self) -> None:
        for message in self.server.receive():
            if isinstance(message, HorseExited):
                self._on_exit(message)
            elif isinstance(message, ForkFailed):
                self.back_off(f"fork failed: {os.strerror(message.errno)}")
                self._owner.fork_failed(message)
            elif isinstance(message, Ready):
                self.ready = True
            elif isinstance(message, Alike):
                self._log.warning(
                    "every process has %s in the same state, which can't be set anew: make such a thing inside the task, or in after_fork",
                    ", ".join(message.names),
                )
            elif isinstance(message, Tainted):
                self.tainted = message
            elif isinstance(message, ImportFailed):
                self.import_failed = message
            elif isinstance(message, ServerClosed):
                self._kill_all()  # whoever ended it may have left its horses' children
                self._owner.close()

    def _on_exit(self, exited: HorseExited) -> None:
        leaving = self.leaving.pop(exited.serial, None)
        if leaving is None:
            self._owner.exited(exited)
        else:
            self.backoff.reset()
            leaving[0].close()

    def check(self, now: float, runs: Iterable[Mortal]) -> None:
        """Insist on what is overdue: the end of an import, an exit, the death of one of these runs; but hear first what came while we stood still."""
        late, self.check_at = now - self.check_at, now + CHECK_INTERVAL
        if late > _LATE:
            return
        if why := self._overdue(now, runs):
            self._log.warning("%s: the fork server is stuck and is killed", why)
            self._kill_all()
            self._owner.close()

    def _overdue(self, now: float, runs: Iterable[Mortal]) -> str:
        if not self.ready and not self.closed and now > self._ready_by:
            return f"task module {self.server.importing} does not end its import"
        for serial, (horse, by) in self.leaving.items():
            if now > by + EXIT_LIMIT:
                return f"horse {serial} neither ended nor was reported dead"
            if now > by:
                self.server.kill(horse, SIGKILL)
        for run in runs:
            if now > run.must_end + EXIT_LIMIT:
                return f"job {run.claimed.id} was to be killed and is not reported dead"
        return ""

    def _kill_all(self) -> None:
        """The fork server, its session and, by descent, what left the session. Until it is waited for its pid names them."""
        server = self.server.pid
        if server is None:
            return
        found, doomed, before = processes(), {server}, 0
        while before < len(doomed):
            before = len(doomed)
            doomed |= {pid for pid, parent, session in found if parent in doomed or session == server}
        for pid in doomed:
            try:
                os.kill(pid, SIGKILL)
            except OSError:
                continue

    def end(self) -> None:
        """End the fork server and wait for it: from here on no horse of it runs."""
        self.closed = True
        self._loop.unwatch(self._control_fd)
        if not self.ready:
            self._kill_all()  # an import under way does not hear that it should end
        self.server.destroy()
        for horse, _ in self.leaving.values():
            horse.close()
        self.leaving.clear()
