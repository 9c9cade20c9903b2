"""The worker: claims jobs, has horses run them, commits what became of them. One loop, no threads, nothing in it waits for a job."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence

from redis import Redis

from fusion.executors.base import KillCause
from fusion.executors.generations import ExecutorGenerations
from fusion.kernel.failpoints import failpoint
from fusion.kernel.memory import MemoryThrottle
from fusion.runtime.commands import KILL_HORSE, LOOK, QUIET, SHUTDOWN, UNQUIET, Commands
from fusion.runtime.free_slots import FreeSlots
from fusion.runtime.job_log import JobLog, one_line
from fusion.runtime.loop import Loop
from fusion.runtime.maintenance import Maintenance
from fusion.runtime.membership import Membership, WorkerListing
from fusion.runtime.outbox import Outbox
from fusion.runtime.probes import Probes
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.runtime.signals import Signals
from fusion.runtime.supervised import SupervisorLine
from fusion.settings import Settings
from fusion.store.client.connections import check_server, connect, describe
from fusion.store.write.broker import Broker
from fusion.worker.admission import Admission
from fusion.worker.blocked import BlockedWork
from fusion.worker.burst import Burst
from fusion.worker.dispatch import Dispatcher
from fusion.worker.doorbells import Doorbells
from fusion.worker.envelope import EnvelopeCheck
from fusion.worker.health import Health
from fusion.worker.job_memory import JobMemory
from fusion.worker.outcomes import Outcomes
from fusion.worker.probation import Probation
from fusion.worker.recycling import Recycling
from fusion.worker.relay_child import RelayChild
from fusion.worker.slots import Slots
from fusion.worker.task_logs import TaskLogs

log = logging.getLogger("fusion.worker")

#: Turns in a row before sockets and signals are looked at.
_TURNS = 10
#: Seconds a killed horse's last words are waited for at a cold shutdown.
_COLD_LIMIT = 2.0
#: Seconds between two rounds of the loop in which nothing happens: parts without a timer are checked then.
_ROUND = 0.25


class Worker:
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
        relay: Sequence[str] = (),
        probation: Sequence[str] = (),
        only_probation: bool = False,
    ) -> None:
        self.settings = settings
        self.served_queues = ServedQueues(queues, listed=settings.order == "listed")
        self.loop, self.signals, self.link = Loop(), Signals(), RedisLink(log)
        self.job_log = JobLog(log, job_lines, messages=settings.log_errors == "full")
        self.connection = connect(settings, role="worker")
        self.broker = Broker.of(self.connection, settings)
        log.addFilter(self._sign)
        self.reporter = SupervisorLine.inherited()
        self.outbox = Outbox(self.broker, self.link, settings)
        listing = WorkerListing(settings, self.broker, self.served_queues, self.reporter)
        self.membership = Membership(self.link, listing, settings.name, settings.lease / 3, self.outbox.renumber)
        self.maintenance = Maintenance(settings, self.broker, self.link, self.served_queues, log)
        self.relay_child = RelayChild(settings, self.connection, self.loop, self.link, log, relay)
        self.blocked_work = BlockedWork(self.served_queues)
        self.probation = Probation(settings, self.broker, self.loop, self.link, log, probation, only_probation)
        self.executors = ExecutorGenerations(settings, self.loop, log)
        self.recycling = Recycling(settings, self.executors, self.reporter)
        if throttle is None and settings.memory_throttle:
            throttle = MemoryThrottle.of(settings)
        self.admission = Admission(settings.slots, settings.reserve_high, throttle, log)
        self.slots = Slots(settings, self.executors, self.admission, self.recycling)
        self.envelopes = EnvelopeCheck(settings, log)
        outcomes = Outcomes(self.outbox, self.blocked_work, self.slots, settings.timeout_grace)
        self.task_logs = TaskLogs(self.broker, self.link, self.membership, log)
        self.dispatcher = Dispatcher(self.executors, self.slots, self.envelopes, outcomes, self.task_logs, self.job_log)
        self.burst = Burst(burst, self.broker, self.link, self.served_queues, self.executors, log)
        self.job_memory = JobMemory(settings.max_job_memory, self.executors)
        self.health = Health(settings, self.membership, self.link, self.executors, self.admission, self.job_log, self.slots)
        self.probes = Probes(self.loop, {"/livez": self.health.live, "/readyz": self.health.ready})
        self.doorbells = Doorbells(
            self._connect_blocking, self.broker, self.link, self.loop, settings.idle_wait, self.slots.floors, self._want_turn
        )
        keys = self.broker.keys
        self.commands = Commands(self._connect_blocking, lambda: keys.pubsub(self.name), keys.pubsub("_fleet"))
        self._look_at = 0.0
        self._give_up_at = float("inf")
        self._cold = False
        self._parent = os.getppid()

    @property
    def name(self) -> str:
        """Under which Redis knows it: another's that was taken got a number."""
        return self.membership.name

    def _connect_blocking(self) -> Redis:
        return connect(self.settings, role="blocking")

    # -- life

    def run(self) -> int:
        """Work until told to stop. 0 after a warm end; 1 after a forced one, or if Redis could not be told everything.

        ConfigurationError if the server or the queues' keys can't be used; redis-py's errors if it can't be reached at the start.
        """
        check_server(self.connection, allow_eviction=self.settings.allow_eviction)
        self._meet_rq(self.served_queues.check(self.broker.wrong_types))
        if self.settings.probe_port is not None:
            log.info("probes: %s/livez and /readyz", self.probes.open(self.settings.probe_host, self.settings.probe_port))
        self.signals.install()  # from here on a signal is a request, and what was registered is taken back
        self.loop.watch(self.signals.fileno(), self._on_signal)
        self.reporter.watch(self.loop)
        try:
            self.membership.enter(patient=not self.burst.on)
            log.info("worker %s (pid %d) serves %s", self.name, os.getpid(), self.served_queues)
            log.info("Redis: %s", describe(self.connection))
            self.envelopes.announce()
            while self._step():
                pass
            return self._end()
        finally:
            self.executors.close()
            self.relay_child.close()
            self.probation.close()
            self.doorbells.close()
            self.probes.close()
            self.commands.close()
            self.signals.restore()
            self.reporter.close()
            self.connection.close()
            log.removeFilter(self._sign)

    def _meet_rq(self, lists: Sequence[str]) -> None:
        """Say what becomes of queues that stock RQ's producers write to, too."""
        adopted = self.settings.adopt_rq or ()
        if adopted:
            self.broker.adopt(adopted)
            log.info("jobs that stock RQ's producers enqueue to %s run here", ", ".join(adopted))
        for queue in lists:
            if queue not in adopted:
                log.warning(
                    "queue %s: its key is a list of stock RQ's and stays RQ's; --adopt-rq %s runs those jobs, too", queue, queue
                )

    def _sign(self, record: logging.LogRecord) -> bool:
        record.worker = self.name
        return True

    def _step(self) -> bool:
        """One round of the loop; False when the work is done."""
        if self.signals.noted:
            self._on_signal()  # before another job is taken
        now = time.monotonic()
        self.executors.tick(now)
        settled = self.outbox.settled and self.link.away_since is None
        if end := self.recycling.tick(now, settled=settled, stopping=self.slots.stopping, outdated=self.link.outdated):
            self._stop(end.why)
            if end.cold:
                self._go_cold()
            # a suspect's worker that its own worker took along: what it runs is given back before somebody kills it, too
            self._cold = self._cold or (self.probation.only and os.getppid() != self._parent)
        if not self.slots.stopping and self.burst.is_hopeless():
            self._stop("no job can run")
        if self.admission.look(now, self.membership):
            self.slots.turn_wanted = True
        self.job_memory.tick(now)
        self.relay_child.tend(now)
        taking = self.admission.open and not self.slots.stopping
        incarnation, sets = self.membership.incarnation, self.blocked_work.on_probation
        if self.probation.tend(now, incarnation, sets, busy=self.executors.busy, taking=taking):
            self.slots.turn_wanted = True
        self.health.tick(now)
        self.probes.tick(now)
        self.doorbells.check(now)
        if self.link.open(now):
            try:
                self._talk(now)
            except RedisAway:
                pass
        if self._is_done(now):
            return False
        self._listen()
        self.executors.flush()
        self.loop.run_once(self._timeout())
        return True

    def _talk(self, now: float) -> None:
        """Everything that is due with Redis; leases first, since a turn with large results may not get through for long."""
        if now >= self.membership.next_at:
            self.dispatcher.renew_leases(self.membership, now)
        if now >= self._look_at and self.slots.floors():
            self._look_at = now + self.settings.idle_wait
            if self.served_queues.patterns:  # else it asks nobody, and would prove nothing
                interval = self.settings.idle_wait / 2
                if self.link.attempt(lambda: self.served_queues.refresh(self.broker.survey, interval), look=True):
                    self._look_at = now
            self.slots.turn_wanted = True
        self.outbox.struck(self.signals.struck_at)
        self.outbox.offer_late(now)
        for _ in range(_TURNS):
            if not self.slots.turn_wanted and self.outbox.settled:
                break
            self._turn()
        if now >= self.maintenance.next_at:
            self.maintenance.tick(now)
        self.task_logs.flush(now)

    def _timeout(self) -> float:
        now = time.monotonic()
        if self.slots.turn_wanted or not self.outbox.settled:
            redis_at = now
        else:
            look_at = self._look_at if self.slots.floors() else float("inf")
            redis_at = min(
                self.membership.next_at, self.maintenance.next_at, self.task_logs.next_at, self.outbox.next_at, look_at
            )
        own_at = min(now + _ROUND, self.executors.next_at, self.admission.next_at, self.job_memory.next_at, self._give_up_at)
        return max(0.0, min(own_at, max(redis_at, self.link.retry_at)) - now)

    def _want_turn(self) -> None:
        self.slots.turn_wanted = True

    # -- the turn

    def _turn(self) -> None:
        """Tell Redis the outcomes and take jobs for the free slots: one round trip."""
        floors = self.slots.floors()
        ahead = self.slots.ahead(floors)
        slots = FreeSlots(floors, ahead)
        self.slots.turn_wanted = False
        began = time.monotonic()
        self.blocked_work.renew(self.executors.generation)
        wishes = self.blocked_work.wishes(began, self.probation)
        self.outbox.send(self.served_queues.turn, slots, wishes)
        if not self.outbox.is_sending:
            return
        turn, results = self.outbox.receive(self.name, self.membership.incarnation)
        if turn.status == "unregistered":
            log.warning("this worker's registration is gone from Redis; registering again")
            self.membership.renew()
            return
        for result, answer in zip(results, turn.answers, strict=False):
            again = answer.startswith("error:") and self.outbox.refused(result)
            self.job_log.committed(result.claimed, result.decision, answer, again=again)
        for queue, error in turn.bad:
            self.job_log.bad_queue(queue, error)
        for claimed in turn.jobs:
            self.served_queues.served(claimed.queue)
            self.dispatcher.start(claimed)
        if moved := max(len(results), len(turn.jobs)):
            self.executors.exchanged(time.monotonic() - began, moved)
        self.job_log.suspended(turn.status == "suspended")
        if turn.status == "suspended":
            self.executors.recall("suspended")
        if turn.next_in is not None:
            self.maintenance.due(time.monotonic() + turn.next_in)
        self.slots.turn_wanted = turn.again
        if turn.waits is not None:
            self.blocked_work.heard(turn.waits)
            self.doorbells.renew()
            self.probation.due()
            self.slots.turn_wanted = True
        if (
            self.burst.on
            and (floors or ahead)
            and not turn.jobs
            and not turn.again
            and self.outbox.settled
            and not self.executors.busy
        ):
            if self.burst.is_over(turn, self.probation):
                self.reporter.say("DONE")
                self.slots.stopping = True
            else:
                self.slots.turn_wanted = turn.waits is not None or not self.probation.pending

    # -- waiting

    def _listen(self) -> None:
        """Wait at the doorbells while a slot is free, and keep the loop's descriptors in step with the connections."""
        if self.link.away_since is None:
            if not self.slots.turn_wanted:
                self.doorbells.arm(self.blocked_work.bells(time.monotonic(), self.probation))
            self.commands.tick(time.monotonic())
        self.doorbells.follow()
        self.loop.follow("commands", self.commands.fileno(), self._on_command)

    def _on_command(self) -> None:
        for command in self.commands.receive():
            if command == LOOK:
                self.slots.turn_wanted = True
                continue
            log.info("command: %s", one_line(command, 100))
            if command in (QUIET, UNQUIET):
                self._set_quiet(command == QUIET)
            elif command == SHUTDOWN:
                self._stop("command")
            elif command == KILL_HORSE:
                for run in self.executors.running:
                    self.executors.kill(run, KillCause.COMMAND)

    # -- the end

    def _on_signal(self) -> None:
        self.signals.drain()
        if self.signals.set_quiet is not None:
            self._set_quiet(self.signals.set_quiet)
            self.signals.set_quiet = None
        if self.signals.reload:
            self.signals.reload = False
            log.info("reload: a new fork server takes the next jobs, running ones finish in the old")
            self.envelopes.reload()
            self.executors.reload()
        if self.signals.quit or self.signals.stops > 1:
            self._go_cold()
        elif self.signals.stops:
            self._stop("signal")

    def _go_cold(self) -> None:
        if not self._cold:
            log.warning("cold shutdown: running jobs are killed and go back to their place")
        self._cold = self.slots.stopping = True

    def _set_quiet(self, quiet: bool) -> None:
        if self.admission.set_quiet(quiet, self.membership):
            if quiet:
                self.executors.recall("quiet")
            else:
                self.slots.turn_wanted = True

    def _stop(self, why: str) -> None:
        if not self.slots.stopping:
            log.info("warm shutdown (%s): %d running job(s) will be finished, none taken", why, len(self.executors.running))
            self.executors.drain()
            self.probation.release()
        self.slots.stopping = True

    def _is_done(self, now: float) -> bool:
        if self._cold:
            return True
        if not self.slots.stopping or self.executors.busy or self.probation.child:
            return False
        if self.outbox.settled:
            return True
        # Redis is away with outcomes waiting: worth one lease, after which another worker runs the jobs anyway
        self._give_up_at = min(self._give_up_at, now + self.settings.lease)
        return now >= self._give_up_at

    def _end(self) -> int:
        failpoint("shutdown.drain")
        if self._cold:
            for run in self.executors.running:
                self.executors.kill(run, KillCause.COLD)
            until = time.monotonic() + _COLD_LIMIT
            while self.executors.busy and time.monotonic() < until:
                self.executors.flush()
                self.loop.run_once(0.05)
        try:
            self.outbox.struck(self.signals.struck_at)
            self.outbox.offer_late(float("inf"))
            while not self.outbox.settled:
                self._turn()
            self.task_logs.flush_all()
            back = self.membership.leave()
            if back:
                log.warning("%d job(s) went back to their place, their attempt unspent", back)
        except RedisAway:
            log.error("Redis could not be told that this worker ends; its jobs are recovered when their leases run out")
            return 1
        log.info("worker %s ended", self.name)
        return 1 if self._cold else self.burst.code
