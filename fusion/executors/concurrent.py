"""Concurrent horses: processes that run many jobs at once, as threads or as coroutines."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from math import inf
from signal import SIGKILL

from fusion.executors import readings
from fusion.executors.base import Capacity, KillCause, Run
from fusion.executors.concurrent_horse import ConcurrentForkServerClient, ConcurrentHorse, CrowdRun
from fusion.executors.session import ExecutorContext, HorsePool, ServerSession
from fusion.forkserver.messages import ForkFailed, HorseExited, ImportFailed
from fusion.kernel.failpoints import failpoint
from fusion.runtime.free_slots import HIGH
from fusion.settings import Settings
from fusion.store.layout.records import Claimed

#: Seconds by which the fork server's deadline may be late, so that not every job must send a new one.
_SLACK = 5.0
#: Seconds before an idle horse's deadline at which the deadline is removed.
_NEAR = 2.0
#: Jobs in a row that fail in Fusion's own code until their process is replaced: a task must have broken it.
OWN_FAULTS = 3
#: Seconds in which a condemned horse must answer. If it does not, it is stuck, and so are all its runs.
SIGN = 2.0
#: Seconds between two warnings, and most characters of a stack.
_WARN_PAUSE, _STACK = 10.0, 4000
#: For coroutines: all claimed jobs begin at once, and their leases are renewed from then on.
MOST = 50
#: For threads, for each process, while turns are short.
FEW = 16
#: Seconds below which a turn counts as short. It is longer with a distant Redis or on a busy machine.
_SHORT_TURN = 0.008
#: Weight of the last turn in the expected time of the next one.
_NEW_TURN = 0.1
_LINES = (b"log", b"output", b"report", b"member", b"stands", b"telemetry")
_OF_A_RUN = (*_LINES, b"meta", b"callback", b"unbegun")


class TurnSize:
    """Chooses small turns for threads: jobs begin as soon as their turn ends, some while Redis answers the next one.

    In threads jobs begin one after another, so after a large turn threads idle until the last job begins. But small turns mean more turns.
    If any turn takes long, `most` is as large as for coroutines, which begin far faster.
    """

    def __init__(self, horses: int, *, threads: bool) -> None:
        self._few = min(MOST, FEW * horses) if threads else MOST
        self._turn = 0.0

    def exchanged(self, seconds: float) -> None:
        """Record how long a turn with jobs or outcomes took, delivery included."""
        self._turn += (seconds - self._turn) * _NEW_TURN

    @property
    def most(self) -> int:
        """Jobs that the next turn may take."""
        return self._few if self._turn < _SHORT_TURN else MOST


class Condemned:
    """Condemns horses, and kills them once their time is over.

    A condemned horse gets no more jobs. Its group is killed when only runs that must end are left, when the `neighbour_grace` is over, or
    when it does not answer within `SIGN`, whichever comes first. It is not killed if all of these runs have ended, unless it is tainted.
    """

    def __init__(self, server: ConcurrentForkServerClient, settings: Settings, log: logging.Logger) -> None:
        self._server, self._grace, self._log = server, settings.neighbour_grace, log

    def condemn(self, horse: ConcurrentHorse, run: CrowdRun | None, why: str) -> None:
        """Condemn a horse because of this run."""
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
        """Kill a condemned horse if it is time, or spare it if the reason is gone."""
        must_end = [run for run in horse.runs.values() if run.overdue]
        if not (must_end or horse.tainted):
            horse.kill_by = horse.answer_by = inf
        elif horse.runs and (len(must_end) == len(horse.runs) or now >= min(horse.kill_by, horse.answer_by)):
            self.strike(horse)

    def strike(self, horse: ConcurrentHorse) -> None:
        """SIGKILL the group of a horse, and expect its death to be reported soon."""
        horse.leaving = horse.leaving or "killed"
        if not horse.struck:
            horse.struck, horse.deadline = True, time.monotonic()
            self._server.kill(horse, SIGKILL)

    def tick(self, horses: Iterable[ConcurrentHorse], now: float) -> float:
        """Judge the condemned horses. Return when the next check is due."""
        soonest = inf
        for horse in horses:
            if horse.condemned and not horse.struck:
                self.judge(horse, now)
            soonest = min(soonest, min((run.due for run in horse.runs.values() if not run.overdue), default=inf))
            if horse.condemned and not horse.struck:
                soonest = min(soonest, horse.kill_by, horse.answer_by)
        return soonest


class BlockedLoopLog:
    """Warns of a job that blocks the loop that it shares with others, with its stack. It limits how often it warns."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told_at = -inf
        self._untold = 0

    def found(self, horse: ConcurrentHorse, run: CrowdRun | None, frame: Mapping[bytes, bytes]) -> None:
        """Log that a horse reported a blocked loop."""
        now = time.monotonic()
        if now < self._told_at + _WARN_PAUSE:
            self._untold += 1
            return
        before = f" ({self._untold} more were not told)" if self._untold else ""
        self._told_at, self._untold = now, 0
        stack = frame.get(b"stack", b"").decode("utf-8", "replace")[-_STACK:]
        self._log.warning(
            "the event loop of a process with %d jobs stands still for %.1f s%s; it is blocked by %s. Await what takes long, or make the "
            "task a plain function, which gets a thread:\n%s",
            len(horse.runs),
            readings.standstill(frame),
            before,
            f"job {run.claimed.id}" if run else "something that is not one of these jobs",
            "".join(c if c.isprintable() or c == "\n" else "?" for c in stack),
        )


class ConcurrentExecutor:
    """Gives each job to the horse with the fewest jobs; a job with `isolate` gets its own process.

    - the horse itself enforces soft timeouts and stops. Hard deadlines count from the run's begin and are enforced here (see `Condemned`), and
      later by the fork server, in case the worker is stuck;
    - jobs that must run alone have as many processes as there are shared ones; more of them wait here, without a slot.
    """

    def __init__(self, server: ConcurrentForkServerClient, context: ExecutorContext) -> None:
        """Start the fork server; OSError if that fails."""
        settings = self._settings = context.settings
        self._listener = context.listener
        self._places, self._wanted = settings.places, settings.horses or 1
        self._most_jobs = settings.max_jobs_per_horse * settings.places
        self._turn_size = TurnSize(self._wanted, threads=settings.executor == "thread")
        #: The runs that have begun, by execution.
        self.runs: dict[str, CrowdRun] = {}
        #: Runs that must run alone, the highest class first.
        self._waiting: list[CrowdRun] = []
        self._server = server
        self._condemned = Condemned(server, settings, context.log)
        self._standstills = BlockedLoopLog(context.log)
        self._due_at = inf
        self.session = ServerSession(server, context, self, 2 * self._wanted)
        self.horses = HorsePool(self.session, context.loop, server.fork, self._listen_to)

    # -- room

    def room(self) -> Capacity:
        """Return how many jobs can be started now, and how many slots are in use. Called for each job."""
        return Capacity(self._capacity, self._taken, len(self._waiting) > self._settings.slots)

    @property
    def _capacity(self) -> int:
        if not self.session.open or (self._waiting and sum(run.priority >= HIGH for run in self._waiting) > self._settings.slots):
            return 0
        room = 0
        for horse in self.horses.values():
            room += horse.room(self._places)
        return min(self._turn_size.most, room)

    @property
    def _taken(self) -> int:
        """Return the runs that use slots: not those alone in a process, nor those about to be killed with theirs."""
        taken = 0
        for horse in self.horses.values():
            if not (horse.company or horse.condemned):
                taken += len(horse.runs)
        return taken

    @property
    def queued(self) -> list[CrowdRun]:
        """Runs that must be alone in their process and have not begun."""
        return self._waiting

    @property
    def next_at(self) -> float:
        """Monotonic time of the next check; inf at rest."""
        soonest = self.session.next_at(at_rest=not self.runs, short=self._short)
        if self.runs:
            return min(soonest, self._due_at)
        return min(soonest, max(self.session.check_at, min((horse.told for horse in self.horses.values()), default=inf) - _NEAR))

    @property
    def _short(self) -> bool:
        return self._sharing < self._wanted or self._may_begin_alone

    @property
    def _sharing(self) -> int:
        return sum(not (horse.company or horse.leaving) for horse in self.horses.values())

    @property
    def _may_begin_alone(self) -> bool:
        """Return True if one more run may be alone: as many as there are other processes. HIGH jobs may have as many again as slots are
        reserved."""
        if not self._waiting:
            return False
        reserved = min(self._settings.reserve_high, self._wanted) if self._waiting[0].priority >= HIGH else 0
        return sum(horse.company > 0 for horse in self.horses.values()) < self._wanted + reserved

    def fill(self, now: float) -> bool:
        """Fork missing horses, and start the runs that wait to be alone or with other suspects.

        True if a job can be started now, and none could before.
        """
        if not (self._short and self.session.may_fork(now)):
            return False
        had_room = self._capacity > 0
        while self.session.may_fork(now) and self._sharing < self._wanted and self.horses.fork():
            pass
        while self.session.may_fork(now) and self._may_begin_alone and (horse := self.horses.fork()):
            run = self._waiting.pop(0)
            horse.company = run.company
            self._give(horse, run)
            self._gather_suspects(horse)
        return not had_room and self._capacity > 0

    def _gather_suspects(self, horse: ConcurrentHorse) -> None:
        """Give a horse the suspects that may share it, as many as the strictest of them allows."""
        for run in list(self._waiting) if horse.company > 1 else ():
            if horse.takes_in(run):
                self._waiting.remove(run)
                self._join(horse, run)

    def _join(self, horse: ConcurrentHorse, run: CrowdRun) -> None:
        horse.company = min(horse.company, run.company)
        self._give(horse, run)

    def exchanged(self, seconds: float, jobs: int) -> None:
        """Record one exchange with Redis."""
        self._turn_size.exchanged(seconds)

    # -- jobs

    def expect(self) -> None:
        """Wake the horse that gets the next job."""
        if (horse := self._freest()) and not horse.runs and not horse.unsent:
            horse.wake()

    def _freest(self) -> ConcurrentHorse | None:
        freest, most = None, 0
        for horse in self.horses.values():
            if (room := horse.room(self._places)) > most:
                freest, most = horse, room
        return freest

    def start(self, claimed: Claimed, limit: float) -> CrowdRun | None:
        """Give a job to a horse, or keep it until it can run alone. None if no horse has room."""
        run = CrowdRun(claimed, limit, time.monotonic())
        run.company = 1 if claimed.fields.get(b"isolate") else min(readings.suspects(claimed.fields), self._places)
        run.peak_before = b"" if run.company == 1 else None
        if (among := next((horse for horse in self.horses.values() if horse.takes_in(run)), None)) is not None:
            self._join(among, run)
            return run
        if run.company:
            at = next((at for at, other in enumerate(self._waiting) if other.priority < run.priority), len(self._waiting))
            self._waiting.insert(at, run)
            self.fill(run.began)
            return run
        if (horse := self._freest()) is None:
            return None
        self._give(horse, run)
        return run

    def _give(self, horse: ConcurrentHorse, run: CrowdRun) -> None:
        run.horse, run.began = horse, time.monotonic()
        run.due = run.began + run.limit
        run.late_from = run.due - self._settings.timeout_grace
        self._due_at = min(self._due_at, run.due)
        self.runs[run.claimed.execution_id] = run
        if horse.told == inf or horse.told < run.due:  # the fork server gets the deadline before the job comes
            self._server.tell_deadline(horse, run.due + _SLACK)
        horse.give(run)
        if horse.given == self._most_jobs:
            self._retire(horse, "jobs")

    def _retire(self, horse: ConcurrentHorse, why: str) -> None:
        """Give a horse no more jobs, and replace it at once, as jobs may have been claimed for it."""
        if not horse.leaving:
            horse.leaving = why
            self.fill(time.monotonic())

    def send_queued(self) -> None:
        """Send the jobs that were given since the last call, those of a horse together."""
        for horse in self.horses.values():
            if horse.send_jobs():
                failpoint("handout.frame")
                self.session.finish_sending(horse)

    def kill(self, run: Run, cause: KillCause) -> None:
        """End a run of this executor that is not over.

        If its process runs nothing else, or everything in it is to end, the process is killed. Otherwise the task is asked to stop; if it
        does not, the process is condemned.
        """
        if (own := self._own(run)) is None or self._dequeue(own, cause) or (horse := own.horse) is None:
            return
        self._listen_to(horse)  # it may be over: an outcome that it has sent counts
        if own.claimed.execution_id not in self.runs:
            return
        own.killed = cause
        if cause is KillCause.LOST and any(other.killed is not KillCause.LOST for other in horse.runs.values()):
            self._ask_to_stop(horse, own)
        else:
            own.overdue = True
            self._condemned.strike(horse)

    def stop(self, run: Run) -> None:
        """Ask the task of a run to stop. If it still runs after the grace, its horse is condemned."""
        if (own := self._own(run)) is None or self._dequeue(own, KillCause.STOPPED) or (horse := own.horse) is None:
            return
        self._listen_to(horse)
        if own.claimed.execution_id in self.runs and not (own.stopping or own.killed or own.task_over):
            own.stopping = True
            self._ask_to_stop(horse, own)

    def _ask_to_stop(self, horse: ConcurrentHorse, run: CrowdRun) -> None:
        run.due = min(run.due, time.monotonic() + self._settings.timeout_grace)
        self._due_at = min(self._due_at, run.due)
        self._say(horse, {b"kind": b"stop", b"execution_id": run.claimed.execution_id.encode()})

    def _dequeue(self, run: CrowdRun, cause: KillCause) -> bool:
        """End a run that waits here. False if it does not wait here."""
        if run not in self._waiting:
            return False
        self._waiting.remove(run)
        run.killed = cause
        self._listener.ended(run, run.death(None, 1))
        return True

    def tell(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        """Send a frame to a run that waits for it."""
        if (own := self._own(run)) and own.horse:
            self._say(own.horse, {**frame, b"execution_id": own.claimed.execution_id.encode()})

    def _say(self, horse: ConcurrentHorse, frame: Mapping[bytes, bytes]) -> None:
        horse.say(frame)
        self.session.finish_sending(horse)

    def pid(self, run: Run) -> int | None:
        """Return the pid of a run that is alone in its process. The first call only requests it; a later one returns it."""
        own = self._own(run)
        return own.horse.known_pid() if own and own.horse and own.horse.alone else None

    def _own(self, run: Run) -> CrowdRun | None:
        own = self.runs.get(run.claimed.execution_id)
        return own if own is run else next((other for other in self._waiting if other is run), None)

    def return_queued(self, why: str) -> None:
        """Give back the runs that wait to run alone."""
        waiting, self._waiting = self._waiting, []
        for run in waiting:
            self._listener.returned(run, why)

    # -- frames of horses

    def _listen_to(self, horse: ConcurrentHorse) -> None:
        self._take_in(horse, horse.receive())
        if horse.broken and not horse.struck and horse.serial in self.horses:
            self._retire(horse, "broken")
            self._condemned.strike(horse)

    def _take_in(self, horse: ConcurrentHorse, frames: list[dict[bytes, bytes]]) -> None:
        newest = {frame.get(b"execution_id"): at for at, frame in enumerate(frames) if frame.get(b"kind") not in _LINES}
        for at, frame in enumerate(frames):
            if horse.serial not in self.horses:
                return
            kind, run = frame.get(b"kind"), horse.runs.get(frame.get(b"execution_id", b""))
            if kind == b"pong":
                horse.answer_by = inf
            elif kind == b"tainted":
                horse.tainted = True
                if run is not None:
                    run.struck = True
                self._condemn(horse, run, frame.get(b"why", b"").decode("utf-8", "replace"))
            elif kind == b"unfit":
                self._refuse(horse, frame)
            elif kind == b"blocked":
                self._standstills.found(horse, run, frame)
                self._hold_up(horse, run, frame)
            elif kind == b"round":
                for held in horse.runs.values():
                    held.go_on(readings.standstill(frame))
                self._due_at = 0.0
            elif run is None and kind in _OF_A_RUN:
                continue  # nothing counts after an outcome
            elif run is None:
                horse.broken, horse.at_eof = "an outcome of no job that it has", True
                return
            elif kind == b"unbegun":
                self._give_back(horse, [run], "it had not begun when the event loop of its process stood still")
            elif kind == b"callback":
                run.grant_callback(frame, time.monotonic(), self._settings.timeout_grace)
            elif kind in _LINES:
                self._listener.frame(run, frame)
            elif kind != b"meta":
                self._finish(horse, run, frame)
            elif at == newest.get(frame.get(b"execution_id")):  # else a later frame contains it too
                self._listener.frame(run, frame)

    def _hold_up(self, horse: ConcurrentHorse, blocker: CrowdRun | None, frame: Mapping[bytes, bytes]) -> None:
        """Give a horse whose event loop is blocked no more jobs.

        Runs that have not begun go to other horses. The time limits of the others pause, except that of the run that blocks the loop.
        """
        begun = set(frame.get(b"begun", b"").split(b"\n"))
        self._retire(horse, "blocked")
        for run in horse.runs.values():
            if run is not blocker:
                run.hold_up(self._settings.neighbour_grace)
        unbegun = [run for execution, run in horse.runs.items() if execution not in begun and run is not blocker]
        self._give_back(horse, unbegun, "it had not begun when the event loop of its process stood still")

    def _give_back(self, horse: ConcurrentHorse, runs: list[CrowdRun], why: str) -> None:
        """Give back runs that a horse has and will not begin."""
        for run in runs:
            self._drop(horse, run)
        for run in runs:
            self._listener.returned(run, why)
        self._rest(horse)

    def _finish(self, horse: ConcurrentHorse, run: CrowdRun, frame: dict[bytes, bytes]) -> None:
        self._drop(horse, run)
        horse.own_faults = horse.own_faults + 1 if b"own" in frame else 0
        if horse.own_faults >= OWN_FAULTS:
            self._retire(horse, "own faults")
        if (most := self._settings.max_horse_rss) is not None and readings.peak(frame) > most:
            self._retire(horse, "memory")
        self._listener.frame(run, frame)
        self._rest(horse)

    def _drop(self, horse: ConcurrentHorse, run: CrowdRun) -> None:
        execution = run.claimed.execution_id
        del self.runs[execution], horse.runs[execution.encode()]

    def _rest(self, horse: ConcurrentHorse) -> None:
        """Decide what happens to a horse in which a run has ended."""
        if horse.serial not in self.horses or horse.struck:
            return
        if horse.condemned:
            self._condemned.judge(horse, time.monotonic())
        if not horse.runs and (horse.leaving or horse.company or self.session.draining):
            self.horses.forget(horse)
            horse.finish()
            self.session.leave(horse)

    # -- deaths

    def exited(self, exited: HorseExited) -> None:
        """Handle the death of a horse that was not dismissed."""
        if (horse := self.horses.get(exited.serial)) is None:
            return
        if not self._die(horse, exited) and exited.why == "-" and not horse.leaving:
            self.session.back_off("a process for many jobs died without one")
        else:
            self.session.backoff.reset()

    def fork_failed(self, failed: ForkFailed) -> None:
        """Handle a failed fork: give back the jobs of the horse."""
        if horse := self.horses.get(failed.serial):
            self._return_all(horse, "no process could be forked")

    def _refuse(self, horse: ConcurrentHorse, frame: Mapping[bytes, bytes]) -> None:
        """End the fork server: a module that each process imports makes it unfit to run jobs side by side. The horse has read no job."""
        module, why = (frame.get(key, b"").decode("utf-8", "replace") for key in (b"module", b"why"))
        self.session.import_failed = ImportFailed(module, why, "")
        self._return_all(horse, why)
        self.close()

    def _return_all(self, horse: ConcurrentHorse, why: str) -> None:
        self.horses.forget(horse)
        runs = list(horse.runs.values())
        for run in runs:
            self._drop(horse, run)
        horse.close()
        for run in runs:
            self._listener.returned(run, why)

    def _die(self, horse: ConcurrentHorse, exited: HorseExited | None) -> bool:
        """End the runs of a dead horse. True if it had any."""
        self._take_in(horse, horse.drain())  # its last frames
        self.session.forget(horse)
        self.horses.forget(horse)
        runs = list(horse.runs.values())
        for run in runs:
            self._drop(horse, run)
            self._listener.ended(run, run.death(exited, len(runs)))
        horse.close()
        return bool(runs)

    # -- time and the end

    def tick(self, now: float) -> None:
        """Kill or condemn what is overdue."""
        if now >= self.session.check_at:
            self.session.check(now, self.runs.values())
            for horse in self.horses.values():
                self._mind_net(horse, now)
        if now >= self._due_at:
            for run in list(self.runs.values()):
                if now >= run.due and not run.overdue and run.horse:
                    run.overdue = True
                    self._condemn(run.horse, run, "does not end")
            self._due_at = self._condemned.tick(self.horses.values(), now)

    def _condemn(self, horse: ConcurrentHorse, run: CrowdRun | None, why: str) -> None:
        self._retire(horse, "condemned")
        self._condemned.condemn(horse, run, why)
        self.session.finish_sending(horse)
        self._due_at = 0.0
        self._rest(horse)

    def _mind_net(self, horse: ConcurrentHorse, now: float) -> None:
        """Send the fork server a new deadline if the one it has is too early, or much too late."""
        latest = max((run.due for run in horse.runs.values()), default=inf)
        if horse.runs and not latest <= horse.told <= latest + 2 * _SLACK:
            self._server.tell_deadline(horse, latest + _SLACK)
        elif not horse.runs and horse.told < now + _NEAR:
            self._server.tell_deadline(horse, inf)

    def drain(self) -> None:
        """Take no more jobs: give back waiting runs, notify running ones, and end idle horses."""
        self.session.drain()
        self.return_queued("its worker takes no more jobs")
        for horse in list(self.horses.values()):
            if horse.runs:
                self._say(horse, {b"kind": b"drain"})
            self._rest(horse)

    def close(self) -> None:
        """End the fork server and all its horses. Each run without an outcome ends or is given back."""
        if self.session.closed:
            return
        horses: Iterable[ConcurrentHorse] = list(self.horses.values())
        self.session.end()
        for horse in horses:
            self._die(horse, None)
        self.return_queued("the fork server ended")
