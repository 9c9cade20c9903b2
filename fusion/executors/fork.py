"""One process for each job: spares are forked ahead, run one job, and exit."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from signal import SIGKILL

from fusion.executors.base import Capacity, KillCause, Run
from fusion.executors.session import EXIT_LIMIT, ExecutorContext, HorseRun, ServerSession
from fusion.forkserver.client import ForkServerClient
from fusion.forkserver.horse_link import Horse
from fusion.forkserver.messages import ForkFailed, HorseExited, ImportFailed
from fusion.store.layout.records import Claimed

#: Frames after which the run goes on, and that must not be skipped.
_LINES = (b"log", b"output", b"report", b"member", b"stands", b"telemetry")


class ForkExecutor:
    """Gives each job to a spare horse.

    - there is one more spare than slots, so that a job never waits for a fork;
    - a process that imports unshareable modules by itself becomes a spare afterwards, so the import takes no job's time and loses no job;
    - a run's death is reported after the horse's last frames are read. The fork server reports it; an end of file does not count;
    - the fork server enforces hard deadlines by its own clock.
    """

    def __init__(self, server: ForkServerClient, context: ExecutorContext) -> None:
        """Start the fork server; OSError if that fails."""
        self._loop, self._listener = context.loop, context.listener
        self._wanted = context.settings.slots + 1
        #: The runs, by the horse's serial number.
        self.runs: dict[int, HorseRun] = {}
        self._spares: deque[Horse] = deque()
        #: Horses that still import, by serial number; those that become spares with the next `fill`; True once there was one.
        self._importing: dict[int, Horse] = {}
        self._imported: list[Horse] = []
        self._can_import = False
        self._import_limit = context.import_timeout
        #: True if each horse imports modules by itself.
        self._by_horses = bool(server.config.by_horses)
        self._server = server
        self.session = ServerSession(server, context, self, self._wanted)

    #: Each process runs one job: none waits behind another.
    queued: Sequence[Run] = ()

    def room(self) -> Capacity:
        """Return how many jobs can be started now, and how many slots are in use."""
        return Capacity(len(self._spares) if self.session.open else 0, len(self.runs))

    @property
    def next_at(self) -> float:
        """Monotonic time of the next check; inf at rest."""
        return 0.0 if self._imported else self.session.next_at(at_rest=not self.runs, short=self._missing > 0)

    @property
    def _missing(self) -> int:
        """The number of horses to fork ahead."""
        return self._wanted - len(self._spares) - len(self._importing) - len(self._imported)

    def expect(self) -> None:
        """Wake the spare that gets the next job."""
        if self._spares:
            self._spares[0].wake()

    def start(self, claimed: Claimed, limit: float) -> HorseRun | None:
        """Give a job to a spare. Its process group is killed `limit` seconds from now."""
        horse = self._spares.popleft()
        now = time.monotonic()
        if self.session.leaving:  # busy: request the next fork along with the job; else the job goes first
            self._fork(now)
        run = HorseRun(claimed, limit, now, horse=horse)
        self.runs[horse.serial] = run
        frame = {b"id": claimed.id.encode(), b"execution_id": claimed.execution_id.encode(), **claimed.fields}
        self._server.run(horse, now + limit, frame)
        self._loop.watch(horse.fileno(), partial(self._on_readable, run))
        if horse.unsent:
            self.session.finish_sending(horse)
        return run

    def kill(self, run: Run, cause: KillCause) -> None:
        """SIGKILL the process group of a run of this executor."""
        if own := self._own(run):
            own.killed = cause
            own.gone_by = time.monotonic() + EXIT_LIMIT
            self._server.kill(own.horse, SIGKILL)

    def tell(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        """Send a frame to the process of a run of this executor."""
        if own := self._own(run):
            own.horse.send(frame)
            self.session.finish_sending(own.horse)

    def stop(self, run: Run) -> None:
        """Ask the task of a run of this executor to stop. Its process group is killed after the grace."""
        own = self._own(run)
        if own and not (own.stopping or own.killed or own.horse.task_over):
            own.stopping = True
            self._server.stop(own.horse, time.monotonic() + self._server.config.grace)

    def pid(self, run: Run) -> int | None:
        """Return the pid of the run's process. The first call only requests it; a later one returns it."""
        own = self._own(run)
        return own.horse.known_pid() if own else None

    def _own(self, run: Run) -> HorseRun | None:
        return next((own for own in self.runs.values() if own is run), None)

    def fill(self, now: float) -> bool:
        """Fork spares ahead. True if a job can be started now, and none could before."""
        had_room = self.session.open and bool(self._spares)
        if self._imported:
            self._spares += self._imported
            self._imported.clear()
        self._fork(now)
        if self._server.unsent:
            self._server.flush()
        return not had_room and self.session.open and bool(self._spares)

    def _fork(self, now: float) -> None:
        """Request the missing horses together with the next message."""
        missing = self._missing
        if missing <= 0 or not self.session.may_fork(now):
            return
        for _ in range(missing):
            if (horse := self.session.fork(self._server.fork_with_next)) is None:
                return
            if self._by_horses:
                self._await_imports(horse, now)
            else:
                self._spares.append(horse)

    def _await_imports(self, horse: Horse, now: float) -> None:
        self._importing[horse.serial] = horse
        self._server.set_deadline(horse, now + self._import_limit)
        self._loop.watch(horse.fileno(), lambda: self._hear_of_imports(horse))

    def _hear_of_imports(self, horse: Horse) -> None:
        ready = horse.receive()
        if ready or horse.at_eof:
            self._loop.unwatch(horse.fileno())
        if ready:
            self._can_import = True
            self._server.set_deadline(horse, inf)
            self._imported.append(self._importing.pop(horse.serial))

    def tick(self, now: float) -> None:
        """Kill what is overdue."""
        if now >= self.session.check_at:
            self.session.check(now, self.runs.values())

    def drain(self) -> None:
        """Take no more jobs; running jobs continue and are notified."""
        self.session.drain()
        for run in self.runs.values():
            run.horse.finish()
        self._dismiss_spares()

    def close(self) -> None:
        """End the fork server and all its horses. Each run without an outcome ends."""
        if self.session.closed:
            return
        self.session.end()
        for run in list(self.runs.values()):
            self._die(run, None)
        self._dismiss_spares()

    def _dismiss_spares(self) -> None:
        for horse in self._importing.values():
            self._loop.unwatch(horse.fileno())
        for horse in (*self._spares, *self._importing.values(), *self._imported):
            horse.close()
        for group in (self._spares, self._importing, self._imported):
            group.clear()

    def _on_readable(self, run: HorseRun) -> None:
        self._take_in(run, run.horse.receive())
        if run.horse.at_eof and run.horse.serial in self.runs:
            self._loop.unwatch(run.horse.fileno())

    def _take_in(self, run: HorseRun, frames: list[dict[bytes, bytes]]) -> None:
        for at, frame in enumerate(frames):
            if run.horse.serial not in self.runs:
                return  # nothing counts after an outcome
            kind = frame.get(b"kind")
            if kind == b"meta":
                if any(later.get(b"kind") not in _LINES for later in frames[at + 1 :]):
                    continue  # a later frame contains it too: a task that saves in a loop must not delay the worker
            elif kind not in _LINES:
                self._loop.unwatch(run.horse.fileno())
                del self.runs[run.horse.serial]
                self.session.leave(run.horse)
            self._listener.frame(run, frame)

    def exited(self, exited: HorseExited) -> None:
        """Handle the death of a horse that was not asked to end."""
        if run := self.runs.get(exited.serial):
            self.session.backoff.reset()
            self._die(run, exited)
        elif exited.serial in self._importing and not self._can_import:
            self._give_up_imports(exited)
        elif self._drop_spare(exited.serial):
            self.session.back_off("a spare horse died before it had a job")

    def _give_up_imports(self, exited: HorseExited) -> None:
        """End the fork server: none of its processes could import the modules that each imports by itself."""
        how = f"does not end within {self._import_limit:g} s" if exited.why == "timeout" else "takes the process down"
        modules = ", ".join(self._server.config.by_horses)
        self.session.import_failed = ImportFailed(modules, f"each job's process imports it by itself, which {how}", "")
        self.close()

    def fork_failed(self, failed: ForkFailed) -> None:
        """Handle a failed fork: the job of the horse ends uncharged."""
        if run := self.runs.get(failed.serial):
            run.killed = KillCause.NO_PROCESS
            self._die(run, None)
        else:
            self._drop_spare(failed.serial)

    def _die(self, run: HorseRun, exited: HorseExited | None) -> None:
        """Read a dead horse's last frames. If no outcome is among them, its run ends."""
        self._take_in(run, run.horse.drain())
        if self.runs.pop(run.horse.serial, None) is not None:
            self._loop.unwatch(run.horse.fileno())
            self._listener.ended(run, run.death(exited))
        self.session.forget(run.horse)
        run.horse.close()

    def _drop_spare(self, serial: int) -> bool:
        if (importing := self._importing.pop(serial, None)) is not None:
            self._loop.unwatch(importing.fileno())
            importing.close()
            return True
        for group in (self._spares, self._imported):
            for horse in group:
                if horse.serial == serial:
                    group.remove(horse)
                    horse.close()
                    return True
        return False
