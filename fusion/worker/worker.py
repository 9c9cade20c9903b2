"""The worker: claims jobs, has an executor run them, commits what became of them. One loop, no threads, nothing in it waits for a job."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from fusion.executors.base import KillCause
from fusion.executors.generations import ExecutorGenerations
from fusion.kernel.failpoints import failpoint
from fusion.kernel.memory import MemoryThrottle
from fusion.runtime.consumer import MAX_TURNS, Consumer
from fusion.runtime.job_log import JobLog
from fusion.runtime.probes import HealthReport
from fusion.runtime.process import Phase, Process
from fusion.runtime.redis_link import RedisAway
from fusion.runtime.served_queues import ServedQueues
from fusion.runtime.shared import Shared
from fusion.runtime.terminal_log import Signature
from fusion.settings import Settings
from fusion.store.client.connections import describe
from fusion.store.layout.records import Claimed, Turn
from fusion.store.write.broker import Broker
from fusion.worker.admission import Admission, Blocked
from fusion.worker.bell_answer import BellAnswer
from fusion.worker.blocked import BlockedWork
from fusion.worker.burst import Burst
from fusion.worker.dispatch import Dispatcher, Stations
from fusion.worker.envelope import EnvelopeCheck
from fusion.worker.gathered import Gathered
from fusion.worker.health import Health
from fusion.worker.job_memory import JobMemory
from fusion.worker.keyless import KeylessJobs
from fusion.worker.orders import Orders
from fusion.worker.outcomes import Outcomes
from fusion.worker.probation import Probation
from fusion.worker.recycling import Recycling
from fusion.worker.relay_child import RelayChild
from fusion.worker.reports import Reports
from fusion.worker.slots import Slots
from fusion.worker.stops import Stops
from fusion.worker.task_logs import TaskLogs

log = logging.getLogger("fusion.worker")

#: Seconds for which a turn's answer is waited for amid a round.
_MOMENT = 0.002
#: Characters of a note for people.
_NOTE = 300
#: Seconds a killed horse's last words are waited for at a cold shutdown.
_COLD_LIMIT = 2.0


@dataclass(frozen=True)
class Companions:
    """Command lines of processes beside a worker: a relay, and a worker for jobs on probation. `only_probation`: this worker is such a one."""

    relay: Sequence[str] = ()
    probation: Sequence[str] = ()
    only_probation: bool = False


class Worker(Process):
    """Runs jobs of the given queues (names or wildcards) until it is told to stop.

    - state lives in Redis; what is here can be lost at any instant, and another worker takes over after the lease;
    - an outcome is kept and offered again until Redis has answered, however long it is away;
    - INT or TERM: finish the running jobs; twice, or QUIT: kill them, they go back to their place; HUP: a fresh fork server.
    """

    def __init__(
        self,
        settings: Settings,
        queues: Sequence[str],
        *,
        burst: bool = False,
        job_lines: bool = True,
        throttle: MemoryThrottle | None = None,
        companions: Companions | None = None,
    ) -> None:
        super().__init__(settings, log, "jobs under way go on")
        companions = companions or Companions()
        if throttle is None and settings.memory_throttle:
            throttle = MemoryThrottle.of(settings)
        self.broker = Broker.of(self.connection, settings)
        self.served_queues = ServedQueues(queues, listed=settings.order == "listed")
        shared = Shared(settings, self.broker, self.link, self.loop, log)
        job_log = JobLog(log, job_lines, messages=settings.log_errors == "full")
        self.consumer = Consumer(shared, self.served_queues, job_log, self.supervisor)
        self.membership, self.outbox = self.consumer.membership, self.consumer.outbox
        self.executors = ExecutorGenerations(settings, self.loop, log)
        self.admission = Admission(settings.slots, settings.reserve_high, throttle, log)
        self.recycling = Recycling(settings, self.executors)
        self.slots = Slots(settings, self.executors, self.admission, self.recycling)
        self.blocked_work = BlockedWork(self.served_queues)
        self.envelopes = EnvelopeCheck(settings, log)
        self.task_logs = TaskLogs(self.broker, self.link, self.membership, log)
        self.reports = Reports(self.broker, self.link, self.membership, self.executors.tell)
        keyless = KeylessJobs(self.consumer.history, log)
        outcomes = Outcomes(self.outbox, self.blocked_work, self.slots, keyless, settings.timeout_grace)
        self.gathered = Gathered(self.executors, self.slots, self.broker, self.link, self.membership, settings)
        self.stops = Stops(self.gathered, self.broker, self.link, log)
        stations = Stations(
            *(self.slots, self.envelopes, self.stops, self.gathered, outcomes, self.task_logs, self.reports, job_log)
        )
        self.dispatcher = Dispatcher(self.executors, stations)
        self.job_memory = JobMemory(settings.max_job_memory, self.executors)
        self.relay_child = RelayChild(shared, companions.relay)
        self.probation = Probation(shared, companions.probation, companions.only_probation)
        self.bell_answer = BellAnswer(self.consumer, self.executors, self.slots, self.blocked_work, self.probation)
        self.burst = Burst(burst, self.broker, self.link, self.served_queues, self.executors, log)
        self.health = Health(settings, self.membership, self.link, self.executors, self.admission)
        self.orders = Orders(shared, self.consumer, self.executors, self.stops, self._set_quiet, self.drain)
        self._give_up = self.timers.at(inf, self._on_give_up)
        self._gave_up = False
        #: Of the last turn: when it began, and if it asked for jobs.
        self._turn_began, self._turn_asks = 0.0, False
        self._parent = os.getppid()
        self._schedule()

    def _schedule(self) -> None:
        """Add what is waited for by the clock, in the order in which it is done; and what is closed at the end, the last first."""
        timers = self.timers
        timers.when(self.bell_answer, partial(self._take_turns, at_once=True), redis=True)
        timers.wake(self.executors)
        timers.wake(self.recycling)
        timers.when(self.admission, self._measure_memory)
        timers.when(self.job_memory, self.job_memory.tick)
        timers.when(self.relay_child, self.relay_child.tick)
        timers.when(self.probation, self._check_probation)
        self.consumer.schedule(timers, self._renew_leases, self._work, self._hear)
        timers.when(self.gathered, self.gathered.tick)
        timers.when(self.reports, self.reports.flush, redis=True)
        timers.when(self.task_logs, self.task_logs.flush, redis=True)
        timers.when(self.orders.commands, self.orders.commands.tick, redis=True)
        timers.when(self.stops, self.stops.tick, redis=True)
        signature = Signature(self.membership)
        log.addFilter(signature)
        self.closing.callback(log.removeFilter, signature)
        self.closing.callback(self.outbox.line.drop)
        for part in (self.orders.commands, self.consumer.doorbells, self.probation, self.relay_child, self.executors):
            self.closing.callback(part.close)

    @property
    def name(self) -> str:
        """The registered name; `.1`, `.2` ... is appended if another live worker has the configured one."""
        return self.membership.name

    # -- life

    def boot(self) -> None:
        """Check the queues, register, and say what is served. ConfigurationError if the key of a queue holds something else."""
        self._meet_rq(self.served_queues.check(self.broker.wrong_types))
        if self.probation.only:
            self.membership.note("probation", "1")
        self.consumer.enter(patient=not self.burst.on)
        for queue, values in (self.settings.queue_gates or {}).items():
            self.link.attempt(partial(self.broker.set_gate, queue, values, of_setting=True))
        log.info("worker %s (pid %d) serves %s", self.name, os.getpid(), self.served_queues)
        log.info("Redis: %s", describe(self.connection))
        self.envelopes.announce()

    def _meet_rq(self, lists: Sequence[str]) -> None:
        """Log what becomes of queues that stock RQ's producers write to, too."""
        adopted = self.settings.adopt_rq or ()
        if adopted:
            self.broker.adopt(adopted)
            log.info("jobs that stock RQ's producers enqueue to %s run here", ", ".join(adopted))
        for queue in lists:
            if queue not in adopted:
                log.warning(
                    "queue %s: its key is a list of stock RQ's and stays RQ's; --adopt-rq %s runs those jobs, too", queue, queue
                )

    def due(self, now: float) -> None:
        """Keep the executors going; end if it is time to; wait at the doorbells while a slot is free."""
        self.executors.tick(now)
        self.health.tick(now)
        self.admission.block(Blocked.NO_EXECUTOR, self.executors.server_pid is None)
        self.membership.note("unloaded", self.executors.unloaded[:_NOTE])
        if self.slots.turn_wanted:
            self.slots.turn_wanted = False
            self.consumer.want()
        if not self.recycling.over:
            settled = self.outbox.told and self.link.away_since is None
            if why := self.recycling.tick(now, settled=settled, waits=self.gathered.waits):
                self.drain(why)
            elif self.burst.is_hopeless():
                self.drain("no job can run")
            if self.recycling.memory:
                self.membership.note("memory", str(self.recycling.memory))
        if self.consumer.wanted or self.consumer.asked:
            self.consumer.listen((), ())
        else:
            if not (floors := self.slots.floors()):
                self.consumer.hand_on()
            self.consumer.listen(self.blocked_work.bells(now, self.probation), floors)
            self.bell_answer.make_ready(now)
        self.orders.follow()
        self.executors.flush()

    def finished(self, now: float) -> bool:
        """Ended cold, or warm with nothing under way that Redis does not know."""
        if self.phase != Phase.DRAINING:
            return self.phase > Phase.DRAINING
        if self.executors.busy or self.probation.child:
            return False
        if not self.outbox.settled:
            # Redis is away with outcomes waiting: worth one lease, after which another worker runs the jobs anyway
            self._give_up.next_at = min(self._give_up.next_at, now + self.settings.lease)
        return self.outbox.settled or self._gave_up

    def _on_give_up(self, now: float) -> None:
        self._gave_up = True

    # -- what timers call

    def _measure_memory(self, now: float) -> None:
        if self.admission.tick(now, self.membership):
            self.consumer.want()

    def _check_probation(self, now: float) -> None:
        taking = self.admission.open
        if self.probation.tick(now, self.membership.incarnation, busy=self.executors.busy, taking=taking):
            self.consumer.want()

    def _renew_leases(self, now: float) -> None:
        self.dispatcher.renew_leases(self.membership, now)

    def _work(self, now: float) -> None:
        """Tell Redis the outcomes and take jobs for the free slots, turn after turn while there is more."""
        self._take_turns(now)

    def _take_turns(self, now: float, *, at_once: bool = False) -> None:
        self.consumer.look(now, self.slots.floors())
        for _ in range(MAX_TURNS):
            if self.consumer.asked or not self.consumer.wanted:
                break
            self._turn(wait=not (at_once or self.executors.busy))

    def _turn(self, *, wait: bool) -> None:
        """Take a turn; without `wait` `_hear` takes in its answer when that has come: whatever runs is served meanwhile."""
        slots = self.slots.free()
        self._turn_began, self._turn_asks = time.monotonic(), bool(slots.floors or slots.ahead)
        self.blocked_work.renew(self.executors.generation)
        self.consumer.send(slots, self.blocked_work.wishes(self._turn_began, self.probation))
        if wait or not self.consumer.ask():
            self._end_turn(self.consumer.receive)
            return
        if slots.floors and not self.executors.busy:
            self.executors.expect()
        if self._heard_soon():
            self._end_turn(self.consumer.hear)

    def _heard_soon(self) -> bool:
        """Serve what runs, and nothing else, for a moment: most turns are answered by then, and a whole round takes as long as some turns do."""
        until = time.monotonic() + _MOMENT
        self.consumer.follow()
        while (left := until - time.monotonic()) > 0:
            self.loop.run_once(left)
            if self.consumer.heard:
                return True
        return False

    def _hear(self, now: float) -> None:
        self._end_turn(self.consumer.hear)

    def _end_turn(self, answer: Callable[[], list[Claimed]]) -> None:
        with self.consumer.job_log.batch:
            for claimed in answer():
                self.dispatcher.start(claimed)
            self.executors.flush()
        if self.consumer.moved:
            self.executors.exchanged(time.monotonic() - self._turn_began, self.consumer.moved)
        if (turn := self.consumer.turn) is not None:
            self._learn(turn, asked=self._turn_asks)

    def _learn(self, turn: Turn, *, asked: bool) -> None:
        """Take in what a turn said besides jobs. `asked`: it asked for some."""
        self.admission.block(Blocked.SUSPENDED, turn.status == "suspended")
        if turn.status == "suspended":
            self.executors.recall("suspended")
        if turn.waits is not None:
            self.blocked_work.heard(turn.waits)
            self.consumer.doorbells.renew()
            self.probation.due(self.blocked_work.on_probation)
            self.consumer.want()
        idle = (
            asked
            and not turn.jobs
            and not turn.again
            and self.outbox.settled
            and not (self.executors.busy or self.gathered.waits)
        )
        if self.burst.on and idle:
            if self.burst.is_over(turn, self.probation):
                self.supervisor.say("DONE")
                self.drain("")
            elif turn.waits is not None or not self.probation.pending:
                self.consumer.want()

    # -- what it is told

    def obey(self) -> None:
        """Do what signals and the supervisor ask for, before another job is taken."""
        signals = self.signals
        self.outbox.struck(signals.struck_at)
        if signals.set_quiet is not None:
            quiet, signals.set_quiet = signals.set_quiet, None
            self._set_quiet(quiet)
        if signals.reload:
            signals.reload = False
            log.info("reload: a new fork server takes the next jobs, running ones finish in the old")
            self.envelopes.reload()
            self.executors.reload()
        super().obey()
        if self.supervisor.released and self.probation.only and os.getppid() != self._parent:
            self.kill()  # its own worker took it along: what it runs is given back before somebody kills it, too

    def _set_quiet(self, quiet: bool) -> None:
        if self.admission.set_quiet(quiet, self.membership):
            if quiet:
                self.executors.recall("quiet")
            else:
                self.consumer.want()

    # -- the end

    def drain(self, why: str) -> None:
        """Take no more jobs, and end when those under way are done. Nothing is logged without a reason."""
        if self.phase < Phase.DRAINING:
            if why:
                log.info("warm shutdown (%s): %d running job(s) will be finished, none taken", why, len(self.executors.running))
            super().drain(why)
            self.recycling.over = True
            self.admission.block(Blocked.RECYCLING)
            self.gathered.give_back_waiting("its worker takes no more jobs")
            self.executors.drain()
            self.probation.release()

    def kill(self) -> None:
        """Kill what runs; it goes back to its place."""
        if self.phase < Phase.KILLING:
            log.warning("cold shutdown: running jobs are killed and go back to their place")
            super().kill()
            self.admission.block(Blocked.RECYCLING)

    def end(self) -> int:
        """Tell Redis the rest and leave. 0 after a warm end; 1 after a forced one, or if Redis could not be told everything."""
        failpoint("shutdown.drain")
        cold = self.phase >= Phase.KILLING
        if cold:
            for run in self.executors.running:
                self.executors.kill(run, KillCause.COLD)
            until = time.monotonic() + _COLD_LIMIT
            while self.executors.busy and time.monotonic() < until:
                self.executors.flush()
                self.loop.run_once(0.05)
        try:
            self.outbox.struck(self.signals.struck_at)
            self.outbox.offer_late(inf)
            while not self.outbox.settled:
                self._turn(wait=True)
            self.reports.flush_all()
            self.task_logs.flush_all()
            self.consumer.history.tick(time.monotonic())
            back = self.membership.leave()
            if back:
                log.warning("%d job(s) went back to their place, their attempt unspent", back)
        except RedisAway:
            log.error("Redis could not be told that this worker ends; its jobs are recovered when their leases run out")
            return 1
        log.info("worker %s ended", self.name)
        return 1 if cold else self.burst.code

    # -- what it says of itself

    def status(self) -> tuple[str, bool]:
        """`stopping`, `busy`, `outdated` or `idle`; ready while a fork server is, unless it is too old for the data."""
        outdated = self.link.outdated
        busy = "busy" if self.executors.busy else "outdated" if outdated else "idle"
        return "stopping" if self.phase >= Phase.DRAINING else busy, self.executors.server_pid is not None and not outdated

    def live(self) -> HealthReport:
        """See `Health`."""
        return self.health.live()

    def ready(self) -> HealthReport:
        """See `Health`."""
        return self.health.ready()
