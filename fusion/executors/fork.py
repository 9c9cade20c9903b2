"""The horses of one fork server: spares, those that run a job, and those that are on their way out."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from signal import SIGKILL

from fusion.executors import readings
from fusion.forkserver.client import ForkServerClient, Horse
from fusion.forkserver.messages import (
    Alike,
    ForkFailed,
    ForkServerConfig,
    HorseExited,
    ImportFailed,
    Ready,
    ServerClosed,
    Tainted,
)
from fusion.kernel.failpoints import failpoint
from fusion.kernel.linux import processes
from fusion.runtime.loop import Loop
from fusion.store.layout.records import Claimed

#: Seconds after an outcome within which the horse must be gone by itself (its atexit handlers have 2 s).
FAREWELL = 3.0
#: Seconds within which a killed horse's EXIT must come; else the fork server is stuck and is killed itself.
EXIT_LIMIT = 2.0
_FORK_PAUSE, _LONGEST_FORK_PAUSE = 0.1, 5.0


@dataclass(slots=True, eq=False)
class Run:
    """One job in one horse. `began`: monotonic time from which `limit` counts, the seconds until it is killed. `killed`: why the worker had
    it killed, empty if it did not.

    `told`: Redis knows that it has begun, where that is told apart from its claim.
    `detail`: what is to be told of it. `said`: its lines that wait to be written; `unsaid`: those dropped, not yet told.
    """

    claimed: Claimed
    horse: Horse
    began: float
    limit: float
    killed: str = ""
    detail: str = ""
    kill_by: float = float("inf")
    told: bool = False
    said: int = 0
    unsaid: int = 0

    @property
    def priority(self) -> int:
        return readings.priority(self.claimed.fields)


class ForkExecutor:
    """One fork server's lifetime.

    - keeps spare horses ahead of need, so that a job never waits for a fork;
    - hands jobs out, passes on what horses say, and tells of a death once the horse's last words are read;
    - kills a fork server that does not report what it must; `closed` then says so, and the worker starts another.
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
    ) -> None:
        self._loop, self._log, self._wanted = loop, log, spares
        self._on_frame, self._on_death = on_frame, on_death
        self.server = self._make_server(config)
        self.ready = self.announced = False
        self.closed = False
        self.retired = False
        self.tainted: Tainted | None = None
        self.import_failed: ImportFailed | None = None
        self.runs: dict[int, Run] = {}
        #: When `look` has something to do.
        self.look_at = float("inf")
        self._spares: deque[Horse] = deque()
        self._leaving: dict[int, tuple[Horse, float]] = {}
        self._fork_at, self._fork_pause = 0.0, _FORK_PAUSE
        self._ready_by = time.monotonic() + import_timeout
        self.server.start()
        self._control_fd = self.server.fileno()
        loop.watch(self._control_fd, self._on_control)

    def _make_server(self, config: ForkServerConfig) -> ForkServerClient:
        return ForkServerClient(config)

    # -- jobs

    @property
    def free(self) -> int:
        """Jobs that could be handed out now."""
        return len(self._spares) if self._open else 0

    @property
    def _open(self) -> bool:
        return not (self.closed or self.retired or not self.ready or len(self._leaving) > 2 * self._wanted + 4)

    @property
    def waiting(self) -> list[Run]:
        """Jobs that are with a horse and have not begun."""
        return []

    @property
    def idle(self) -> bool:
        return not self.runs and not self._leaving

    def fill(self, now: float) -> None:
        """Fork ahead."""
        if not self.ready or self.closed or self.retired or now < self._fork_at:
            return
        while len(self._spares) < self._wanted:
            failpoint("fork.ask")
            try:
                self._spares.append(self.server.fork())
            except OSError as error:  # this process is out of descriptors, say
                self._back_off(f"no socket for another process: {error.strerror}")
                return

    def hand_out(self, claimed: Claimed, limit: float) -> Run | None:
        """Give a job to a spare; its process group is gone `limit` seconds from now. None if there is no process for it after all."""
        horse = self._spares.popleft()
        now = time.monotonic()
        run = Run(claimed, horse, now, limit)
        self.runs[horse.serial] = run
        frame = {b"id": claimed.id.encode(), b"execution_id": claimed.execution_id.encode(), **claimed.fields}
        self.server.run(horse, now + limit, frame)
        fd = horse.fileno()
        self._loop.watch(fd, lambda: self._on_readable(run))
        if horse.wants_write:
            self._loop.want_write(fd, lambda: self._on_writable(run))
        return run

    def room(self, horses: int, free: int) -> int:
        """Jobs that may be claimed to wait behind others, in so many horses; `free` of them are idle now and get a job before that."""
        return 0

    def turned(self, seconds: float, jobs: int) -> None:
        """So long took a turn with Redis and what came of it, in which so many jobs were told or taken."""

    def put_behind(self, claimed: Claimed, limit: float, horses: int) -> Run | None:
        """Let a job wait behind another, with `room`; None if it can't."""
        return None

    def take_back(self, why: str) -> None:
        """Give back what has not begun."""

    def kill(self, run: Run, why: str) -> None:
        run.killed = why
        run.kill_by = time.monotonic() + EXIT_LIMIT
        self.server.kill(run.horse, SIGKILL)

    def flush(self) -> None:
        """Have the loop finish what the fork server's socket would not take at once."""
        if self.server.wants_write:
            self._loop.want_write(self.server.fileno(), self._on_control_writable)

    def _on_control_writable(self) -> None:
        self.server.flush()
        if not self.server.wants_write:
            self._loop.want_write(self.server.fileno(), None)

    # -- what horses say

    def _on_writable(self, run: Run) -> None:
        run.horse.flush()
        if not run.horse.wants_write:
            self._loop.want_write(run.horse.fileno(), None)

    def _on_readable(self, run: Run) -> None:
        self._hear(run, run.horse.receive())
        if run.horse.at_eof and run.horse.serial in self.runs:
            self._loop.unwatch(run.horse.fileno())  # its death is learnt from EXIT, never from here

    def _hear(self, run: Run, frames: list[dict[bytes, bytes]]) -> None:
        newest = max((at for at, frame in enumerate(frames) if frame.get(b"kind") != b"log"), default=-1)
        for at, frame in enumerate(frames):
            if run.horse.serial not in self.runs:
                return  # nothing counts after an outcome
            kind = frame.get(b"kind")
            if kind == b"meta":
                if at < newest:
                    continue  # the next one has it too: a task that saves in a loop must not hold up the worker
            elif kind != b"log":
                self._leave(run)
            self._on_frame(run, frame)

    def _leave(self, run: Run) -> None:
        self._loop.unwatch(run.horse.fileno())
        self.runs.pop(run.horse.serial, None)
        self._leaving[run.horse.serial] = (run.horse, time.monotonic() + FAREWELL)

    # -- what the fork server says

    def _on_control(self) -> None:
        for message in self.server.receive():
            if isinstance(message, HorseExited):
                self._on_exit(message)
            elif isinstance(message, ForkFailed):
                self._on_fork_failed(message)
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
                self.close()

    def _on_exit(self, exited: HorseExited) -> None:
        self._fork_pause = _FORK_PAUSE
        leaving = self._leaving.pop(exited.serial, None)
        if leaving:
            leaving[0].close()
            return
        run = self.runs.get(exited.serial)
        if run is None:
            self._lost_spare(exited.serial)
            return
        self._hear(run, run.horse.drain())  # its last words
        if self.runs.pop(exited.serial, None) is not None:
            self._loop.unwatch(run.horse.fileno())
            self._on_death(run, exited)
        self._leaving.pop(exited.serial, None)
        run.horse.close()

    def _lost_spare(self, serial: int) -> None:
        if self._drop_spare(serial):
            self._back_off("a spare horse died before it had a job")

    def _drop_spare(self, serial: int) -> bool:
        for horse in self._spares:
            if horse.serial == serial:
                self._spares.remove(horse)
                horse.close()
                return True
        return False

    def _on_fork_failed(self, failed: ForkFailed) -> None:
        self._back_off(f"fork failed: {os.strerror(failed.errno)}")
        run = self.runs.pop(failed.serial, None)
        if run is None:
            self._drop_spare(failed.serial)
        else:
            self._loop.unwatch(run.horse.fileno())
            run.horse.close()
            run.killed = "fork failed"
            self._on_death(run, None)

    def _back_off(self, why: str) -> None:
        self._log.error("%s; next try in %.1f s", why, self._fork_pause)
        self._fork_at = time.monotonic() + self._fork_pause
        self._fork_pause = min(_LONGEST_FORK_PAUSE, self._fork_pause * 2)

    # -- time and the end

    def look(self, now: float) -> None:
        """See to runs by their time, if that is done here and not by the fork server."""

    def check(self, now: float) -> None:
        """Insist on what is overdue."""
        if not self.ready and not self.closed and now > self._ready_by:
            self._stuck(f"task module {self.server.importing} does not end its import")
            return
        for serial, (horse, by) in list(self._leaving.items()):
            if now > by + EXIT_LIMIT:
                self._stuck(f"horse {serial} neither ended nor was reported dead")
                return
            if now > by:
                self.server.kill(horse, SIGKILL)
        for run in list(self.runs.values()):
            if now > min(run.horse.deadline, run.kill_by) + EXIT_LIMIT:
                self._stuck(f"job {run.claimed.id} was to be killed and is not reported dead")
                return

    def _stuck(self, why: str) -> None:
        self._log.warning("%s: the fork server is stuck and is killed", why)
        self._kill_all()
        self.close()

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

    def retire(self) -> None:
        """Take no more jobs; horses under way go on."""
        self.retired = True
        while self._spares:
            self._spares.popleft().close()

    def close(self) -> None:
        """End the fork server and with it every horse; tells of the death of each run that had no outcome."""
        if self.closed:
            return
        self._end_server()
        for run in list(self.runs.values()):
            self._hear(run, run.horse.drain())
            if self.runs.pop(run.horse.serial, None) is not None:
                self._loop.unwatch(run.horse.fileno())
                self._on_death(run, None)
            run.horse.close()
        self._clear()

    def _end_server(self) -> None:
        self.closed = True
        self._loop.unwatch(self._control_fd)
        if not self.ready:
            self._kill_all()  # an import under way does not hear that it should end
        self.server.destroy()  # waits for it: from here on no horse of it runs

    def _clear(self) -> None:
        for horse in [*self._spares, *(horse for horse, _ in self._leaving.values())]:
            horse.close()
        self._spares.clear()
        self._leaving.clear()
