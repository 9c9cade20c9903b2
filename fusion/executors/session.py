"""The lifetime of one fork server, as the executors see it: its messages, failed forks, leaving horses, and its end."""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from signal import SIGKILL
from typing import Generic, Protocol, TypeVar

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

#: Seconds after an outcome in which the horse must end by itself (its atexit handlers have 2 s).
FAREWELL = 3.0
#: Seconds in which a killed horse's EXIT must come. If not, the fork server is stuck and is killed.
EXIT_LIMIT = 2.0
#: Seconds between two checks for what is overdue.
CHECK_INTERVAL = 0.25
#: A check that comes this many seconds late shows a rest, or that this process was stopped (SIGSTOP, a frozen machine).
_LATE = 1.0
#: First and longest pause in seconds after a failed fork.
_FORK_PAUSE, _LONGEST_FORK_PAUSE = 0.1, 5.0

AnyHorse = TypeVar("AnyHorse", bound=Horse)


@dataclass(frozen=True, slots=True)
class ExecutorContext:
    """The parts of the worker that an executor uses. `import_timeout`: seconds in which a fork server must load the task modules."""

    settings: Settings
    loop: Loop
    log: logging.Logger
    listener: ExecutorListener
    import_timeout: float


@dataclass(slots=True, eq=False)
class HorseRun(Run):
    """A run in a horse. `gone_by`: monotonic time by which the fork server must report its death after a kill."""

    horse: Horse = field(kw_only=True)
    gone_by: float = inf

    @property
    def must_end(self) -> float:
        """Monotonic time of the signal that ends it; inf for none."""
        return min(self.horse.deadline, self.gone_by)

    def death(self, exited: HorseExited | None) -> Death:
        """Return its end without an outcome. `exited`: None if the fork server ended, or nothing was forked."""
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
        """Handle the death of one of the owner's horses."""

    def fork_failed(self, failed: ForkFailed) -> None:
        """Handle a failed fork of one of the owner's horses."""

    def close(self) -> None:
        """End the session: its fork server died, or is stuck and has been killed."""


class ServerSession:
    """Starts one fork server, reads its messages until it ends, and kills it if it does not report in time.

    - `ready`: its imports are done; `announced`: it has had room for a job since then; `closed`: none of its horses runs any more;
    - `draining`: it gets no more jobs;
    - `tainted`, `import_failed`: why it ended, if it reported that;
    - `leaving`: horses without further work, each with the monotonic time by which it must have exited.
    """

    def __init__(self, server: ForkServerClient, context: ExecutorContext, owner: HorseOwner, horses: int) -> None:
        """Start the fork server; OSError if that fails. `horses`: how many the owner keeps."""
        self.server = server
        self._loop, self._log, self._owner, self._horses = context.loop, context.log, owner, horses
        self.ready = self.announced = self.closed = self.draining = False
        #: True if horses may get jobs: not while too many leaving horses have not exited.
        self.open = False
        self.tainted: Tainted | None = None
        self.import_failed: ImportFailed | None = None
        self.leaving: dict[int, tuple[Horse, float]] = {}
        self.check_at = self.fork_at = 0.0
        self.backoff = Backoff(_FORK_PAUSE, _LONGEST_FORK_PAUSE)
        self._ready_by = time.monotonic() + context.import_timeout
        server.start()
        self._control_fd = server.fileno()
        self._loop.watch(self._control_fd, self._on_control)

    def _changed(self) -> None:
        self.open = self.ready and not (self.closed or self.draining) and len(self.leaving) <= 2 * self._horses + 4

    def drain(self) -> None:
        """Give horses no more jobs."""
        self.draining = True
        self._changed()

    def next_at(self, *, at_rest: bool, short: bool) -> float:
        """Monotonic time of the next check or fork; inf for never. `at_rest`: nothing runs; `short`: the owner lacks a horse."""
        soonest = inf if at_rest and self.ready and not self.leaving else self.check_at
        return min(soonest, self.fork_at) if short and self.ready and not self.draining else soonest

    def may_fork(self, now: float) -> bool:
        """True if horses may be forked ahead."""
        return self.ready and not self.closed and not self.draining and now >= self.fork_at

    def fork(self, ask: Callable[[], AnyHorse]) -> AnyHorse | None:
        """Request a horse with `ask`. If this process has no descriptor left, pause and return None."""
        failpoint("fork.ask")
        try:
            return ask()
        except OSError as error:
            self.back_off(f"no socket for another process: {error.strerror}")
            return None

    def back_off(self, why: str) -> None:
        """Fork nothing ahead for a while; each pause is twice the one before."""
        pause = self.backoff.next()
        self._log.error("%s; next try in %.1f s", why, pause)
        self.fork_at = time.monotonic() + pause

    def leave(self, horse: Horse) -> None:
        """Expect a horse without further work to exit; it is killed if it does not."""
        self.leaving[horse.serial] = (horse, time.monotonic() + FAREWELL)
        self._changed()

    def forget(self, horse: Horse) -> None:
        """Expect nothing more of a horse: its owner knows that it is dead."""
        self.leaving.pop(horse.serial, None)
        self._changed()

    def finish_sending(self, horse: Horse) -> None:
        """Have the loop send the data that the horse's socket did not take at once."""
        if horse.unsent:
            self._loop.want_write(horse.fileno(), lambda: self._on_writable(horse))

    def _on_writable(self, horse: Horse) -> None:
        horse.flush()
        if not horse.unsent:
            self._loop.want_write(horse.fileno(), None)

    def flush(self) -> None:
        """Have the loop send the data that the fork server's socket did not take at once."""
        if self.server.unsent:
            self._loop.want_write(self.server.fileno(), self._on_control_writable)

    def _on_control_writable(self) -> None:
        self.server.flush()
        if not self.server.unsent:
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
                self._changed()
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
                self._kill_all()  # children of its horses may be left
                self._owner.close()

    def _on_exit(self, exited: HorseExited) -> None:
        leaving = self.leaving.pop(exited.serial, None)
        if leaving is None:
            self._owner.exited(exited)
        else:
            if self.backoff.failures:
                self.backoff.reset()
            self._changed()
            leaving[0].close()

    def check(self, now: float, runs: Iterable[Mortal]) -> None:
        """Kill the fork server if an import, an exit or the death of a run is overdue. First read the messages that came while this process
        was stopped."""
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
        """Kill the fork server, its session, and descendants that left the session. Its pid identifies them until it is reaped."""
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
        """End the fork server and wait for it: after that none of its horses runs. Horses that have ended their work get the time for their
        exit handlers before."""
        self.closed = True
        self._changed()
        self._loop.unwatch(self._control_fd)
        if self.ready:
            self._see_off()
        else:
            self._kill_all()  # during an import it does not read the request to end
        self.server.destroy()
        for horse, _ in self.leaving.values():
            horse.close()
        self.leaving.clear()

    def _see_off(self) -> None:
        """Wait until the horses that leave have ended, each for its time at most."""
        while self.leaving and self.server.fileno() >= 0:
            left = max(by for _, by in self.leaving.values()) - time.monotonic()
            arrived = select.poll()
            arrived.register(self.server.fileno(), select.POLLIN)
            if left <= 0 or not arrived.poll(left * 1000):
                return
            for message in self.server.receive():
                if isinstance(message, HorseExited) and message.serial in self.leaving:
                    self.leaving.pop(message.serial)[0].close()


class HorsePool(dict[int, AnyHorse], Generic[AnyHorse]):
    """The horses of one fork server by serial number. The loop watches each of them until `forget`."""

    def __init__(
        self, session: ServerSession, loop: Loop, ask: Callable[[], AnyHorse], listen_to: Callable[[AnyHorse], None]
    ) -> None:
        """`ask`: requests a new horse from the fork server. `listen_to`: handles the frames of a horse."""
        super().__init__()
        self._session, self._loop, self._ask, self._listen_to = session, loop, ask, listen_to

    def fork(self) -> AnyHorse | None:
        """Add a horse. If this process has no descriptor left, pause and return None."""
        horse = self._session.fork(self._ask)
        if horse is not None:
            self[horse.serial] = horse
            self._loop.watch(horse.fileno(), lambda: self._on_readable(horse))
        return horse

    def _on_readable(self, horse: AnyHorse) -> None:
        self._listen_to(horse)
        if horse.at_eof and horse.serial in self:
            self._loop.unwatch(horse.fileno())

    def forget(self, horse: AnyHorse) -> None:
        """Forget a horse that is dead or gets no more jobs."""
        self._loop.unwatch(horse.fileno())
        self.pop(horse.serial, None)
