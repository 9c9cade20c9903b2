"""The worker: claims jobs, has an executor run them, commits their outcomes. One loop, no threads; it never waits for a job."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from fusion.executors.base import KillCause, ServerStatus
from fusion.kernel.failpoints import failpoint
from fusion.kernel.memory import MemoryThrottle
from fusion.runtime.context import ProcessContext
from fusion.runtime.free_slots import FreeSlots
from fusion.runtime.probes import HealthReport
from fusion.runtime.process import Phase, Process
from fusion.runtime.redis_link import RedisAway
from fusion.runtime.terminal_log import WorkerNames
from fusion.settings import Settings
from fusion.store.client.connections import describe
from fusion.store.layout.names import is_pattern
from fusion.store.layout.records import Claimed, Turn
from fusion.store.write.broker import Broker
from fusion.worker.admission import Blocked
from fusion.worker.control import CommandHandler
from fusion.worker.parts import SideProcesses, WorkerPlan, build

if TYPE_CHECKING:
    from fusion.metrics.figures import Figures

log = logging.getLogger("fusion.worker")

#: Characters of a note for people.
_NOTE = 300
#: Seconds for which the last frames of killed processes are awaited at a cold shutdown.
_COLD_LIMIT = 2.0


class Worker(Process):
    """Runs jobs of the given queues (names or wildcards) until it is stopped.

    - all state is in Redis: if this process dies, another worker takes over when the leases expire;
    - an outcome is kept and sent again until Redis has committed it, however long Redis is away;
    - INT or TERM: finish the running jobs; twice, or QUIT: kill them, they go back to their place; HUP: a fresh fork server.

    One job's way: `consumer` claims it (`start_jobs`), `dispatcher` starts it in `executors`; its process sends frames to `dispatcher`, which puts
    the outcome into `consumer.outbox`; the next turn commits it.
    """

    kind = "worker"

    def __init__(
        self,
        settings: Settings,
        queues: Sequence[str],
        *,
        burst: bool = False,
        job_lines: bool = True,
        throttle: MemoryThrottle | None = None,
        side_processes: SideProcesses | None = None,
    ) -> None:
        super().__init__(settings, log, "running jobs go on")
        self.broker = Broker.of(self.connection, settings)
        process = ProcessContext(settings, self.broker, self.link, self.loop, log)
        plan = WorkerPlan(queues, burst, job_lines, throttle, side_processes or SideProcesses())
        self.parts = parts = build(process, plan, self.supervisor, self)
        self.consumer, self.executors, self.slots = parts.consumer, parts.executors, parts.slots
        self.membership, self.outbox, self.admission = self.consumer.membership, self.consumer.outbox, parts.admission
        # The consumer calls these for each turn; they are methods of the parts, as a method here would be one more call.
        self.free_slots, self.claim_filter = parts.slots.free, parts.blocked_work.claim_filter
        self.command_handler = CommandHandler(
            process, self.consumer, self.executors, parts.stop_requests, self._set_quiet, self.drain
        )
        #: The status of the fork server that was noted last.
        self._server_noted = ServerStatus()
        self._give_up = self.timers.at(inf, self._on_give_up)
        if settings.probe_port is not None:
            from fusion.metrics.tally import JobTally

            names = [name for name in queues if not is_pattern(name)]
            self.consumer.history.tally = JobTally(full=settings.probe_metrics == "full", queues=names)
        self._gave_up, self._parent, self._memory_shown = False, os.getppid(), 0
        self._schedule()

    def _schedule(self) -> None:
        """Add the timers in the order in which they run, and the parts to close at the end; the last one closes first."""
        parts, timers = self.parts, self.timers
        if throttle := self.admission.throttle:
            timers.when(throttle, self._measure_memory)
        # Only that goes before a doorbell: an idle worker has nothing more urgent.
        timers.when(self.consumer.rung, self.consumer.claim_at_once, redis=True)
        timers.wake(self.executors)
        if parts.recycling.has_times:
            timers.wake(parts.recycling)
        if self.settings.max_job_memory:
            timers.when(parts.job_memory, parts.job_memory.tick)
        parts.relay_child.schedule(timers)
        # Before a turn: it claims jobs on probation only if this worker may take them.
        timers.when(parts.probation.watched, self._check_probation)
        timers.when(parts.probation, self._check_probation, redis=True)
        self.consumer.schedule(timers, self._renew_leases)
        # After a turn: they use its result, and may wait.
        timers.when(parts.batched_calls, parts.batched_calls.tick)
        timers.when(parts.failover, parts.failover.tick, redis=True)
        timers.when(parts.reports, parts.reports.flush, redis=True)
        timers.when(parts.task_logs, parts.task_logs.flush, redis=True)
        timers.when(parts.kept_logs, parts.kept_logs.flush, redis=True)
        timers.when(self.command_handler.commands, self.command_handler.commands.tick, redis=True)
        timers.when(parts.stop_requests, parts.stop_requests.tick, redis=True)
        signature = WorkerNames(self.membership)
        log.addFilter(signature)
        self.closing.callback(log.removeFilter, signature)
        self.closing.callback(self.outbox.line.drop)
        if parts.telemetry is not None:  # the last: what is closed before it ends runs
            self.closing.callback(parts.telemetry.close)
        # The executors first: no job must run while the rest is closed.
        for part in (self.command_handler.commands, self.consumer.doorbells, parts.probation, parts.relay_child, self.executors):
            self.closing.callback(part.close)

    @property
    def name(self) -> str:
        """The registered name; `.1`, `.2` ... is appended if another live worker has the configured one."""
        return self.membership.name

    # -- turns: commit outcomes, claim jobs for the free slots, start them (see `Consumer.take_turns`)

    @property
    def busy(self) -> bool:
        """True while a job runs."""
        return self.executors.busy

    def turn_sent(self, slots: FreeSlots) -> None:
        """Wake the process that gets the next job while Redis looks for one."""
        if slots.floors:
            self.executors.expect()

    def start_jobs(self, jobs: Sequence[Claimed]) -> None:
        """Start the claimed jobs."""
        for claimed in jobs:
            self.parts.dispatcher.start(claimed)
        self.executors.flush()

    def turn_ended(self, turn: Turn, slots: FreeSlots, *, seconds: float, moved: int) -> None:
        """Use the turn's other results: whether the fleet is suspended, which jobs are blocked, whether a burst is over."""
        parts = self.parts
        if moved:
            self.executors.exchanged(seconds, moved)
        if turn.status == "suspended":
            self.admission.block(Blocked.SUSPENDED)
            self.executors.recall("suspended")
        elif self.admission.blocked:
            self.admission.block(Blocked.SUSPENDED, False)
        if turn.waits is not None:
            parts.blocked_work.update(turn.waits)
            self.consumer.doorbells.renew()
            parts.probation.due(parts.blocked_work.on_probation)
            self.consumer.request_turn()
        if parts.burst.on and (slots.floors or slots.ahead) and not (turn.jobs or turn.again) and self._is_idle():
            if parts.burst.is_over(turn, parts.probation):
                self.supervisor.say("DONE")
                self.drain("")
            elif turn.waits is not None or not parts.probation.pending:
                self.consumer.request_turn()

    def _is_idle(self) -> bool:
        return self.outbox.flushed and not (self.executors.busy or self.parts.batched_calls.waits)

    # -- life

    def boot(self) -> None:
        """Check the queues, register, and log what is served. ConfigurationError if the key of a queue holds something else."""
        parts = self.parts
        self._adopt_rq(parts.served_queues.check(self.broker.wrong_types))
        if parts.probation.only:
            self.membership.note("probation", "1")
        self.consumer.enter(patient=not parts.burst.on)
        for queue, values in (self.settings.queue_gates or {}).items():
            self.link.attempt(partial(self.broker.set_gate, queue, values, of_setting=True))
        log.info("worker %s (pid %d) serves %s", self.name, os.getpid(), parts.served_queues)
        log.info("Redis: %s", describe(self.connection, self.server))
        parts.failover.begin(cluster=self.server is not None and self.server.cluster)
        parts.envelopes.announce()

    def _adopt_rq(self, lists: Sequence[str]) -> None:
        """Adopt the queues of stock RQ's producers that the settings name. Warn of `lists`: other queues that RQ's producers write to."""
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
        """Keep the executors running, end if a limit is reached, and wait at the doorbells while a slot is free."""
        parts = self.parts
        self.executors.tick(now)
        parts.health.turned_at = now
        self._note_executors()
        if self.slots.turn_due:
            self.slots.turn_due = False
            self.consumer.request_turn()
        self._check_limits(now)
        self.consumer.wait(now, parts.blocked_work.bells)
        if self.command_handler.commands.channel is not self.command_handler.followed:
            self.command_handler.follow()
        self.executors.flush()

    def _note_executors(self) -> None:
        """Take no jobs while no task modules are loaded, and show why. A new fork server may have the tasks that the last one lacked."""
        server = self.executors.server
        if server is not self._server_noted:
            if server.generation != self._server_noted.generation:
                self.parts.blocked_work.forget_missing()
            self._server_noted = server
            self.admission.block(Blocked.NO_EXECUTOR, server.pid is None)
            self.membership.note("unloaded", server.unloaded[:_NOTE])

    def _check_limits(self, now: float) -> None:
        """Drain if a limit is reached, or if a burst can run no job."""
        parts = self.parts
        if parts.recycling.over:
            return
        committed = (self.outbox.flushed or self.outbox.committed) and self.link.away_since is None
        if why := parts.recycling.tick(now, settled=committed, waits=bool(parts.batched_calls.waits)):
            self.drain(why)
        elif parts.burst.on and parts.burst.is_hopeless():
            self.drain("no job can run")
        if parts.recycling.memory != self._memory_shown:
            self._memory_shown = parts.recycling.memory
            self.membership.note("memory", str(self._memory_shown))

    def finished(self, now: float) -> bool:
        """Return True after a cold end, or after a warm one once all outcomes are committed."""
        if self.phase > Phase.DRAINING:
            return True
        if self.executors.busy or self.parts.probation.child:
            return False
        if not self.outbox.flushed:
            # Redis is away and outcomes wait: wait for one lease; after that another worker runs the jobs anyway
            self._give_up.next_at = min(self._give_up.next_at, now + self.settings.lease)
        return self.outbox.flushed or self._gave_up

    def _on_give_up(self, now: float) -> None:
        self._gave_up = True

    # -- what timers call

    def _measure_memory(self, now: float) -> None:
        if self.admission.tick(now, self.membership):
            self.consumer.request_turn()

    def _check_probation(self, now: float) -> None:
        taking = self.admission.open
        if self.parts.probation.tick(now, self.membership.incarnation, busy=self.executors.busy, taking=taking):
            self.consumer.request_turn()

    def _renew_leases(self, now: float) -> None:
        self.parts.dispatcher.renew_leases(self.membership, now)

    # -- signals and commands

    def obey(self) -> None:
        """Do what signals and the supervisor ask for, before another job is claimed."""
        signals = self.signals
        if self.outbox.next_at < inf:
            self.outbox.worker_signaled(signals.struck_at)
        if signals.set_quiet is not None:
            quiet, signals.set_quiet = signals.set_quiet, None
            self._set_quiet(quiet)
        if signals.reload:
            signals.reload = False
            log.info("reload: a new fork server takes the next jobs, running ones finish in the old")
            self.parts.envelopes.reload()
            self.executors.reload()
        super().obey()
        if self.supervisor.released and self.parts.probation.only and os.getppid() != self._parent:
            self.kill()  # the worker that started this one is gone: give the jobs back before this one is killed, too

    def _set_quiet(self, quiet: bool) -> None:
        if self.admission.set_quiet(quiet, self.membership):
            if quiet:
                self.executors.recall("quiet")
            else:
                self.consumer.request_turn()

    # -- the end

    def drain(self, why: str) -> None:
        """Claim no more jobs, and end when the running ones are done. Nothing is logged if `why` is empty."""
        if self.phase < Phase.DRAINING:
            if why:
                log.info("warm shutdown (%s): %d running job(s) will be finished, none taken", why, len(self.executors.running))
            super().drain(why)
            self.parts.recycling.over = True
            self.admission.block(Blocked.RECYCLING)
            self.parts.batched_calls.give_back_waiting("its worker takes no more jobs")
            self.executors.drain()
            self.parts.probation.release()

    def kill(self) -> None:
        """Kill the running jobs; they go back to their place."""
        if self.phase < Phase.KILLING:
            log.warning("cold shutdown: running jobs are killed and go back to their place")
            super().kill()
            self.admission.block(Blocked.RECYCLING)

    def end(self) -> int:
        """Commit the rest and leave. Return 0 after a warm end; 1 after a forced one, or if Redis was away."""
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
            self.outbox.worker_signaled(self.signals.struck_at)
            self.outbox.retry_commits(inf)
            while not self.outbox.flushed:
                self.consumer.take_turn(self.free_slots(), blocking=True)
            self.parts.reports.flush_all()
            self.parts.task_logs.flush_all()
            self.parts.kept_logs.flush_all()
            self.consumer.history.tick(time.monotonic())
            back = self.membership.leave()
            if back:
                log.warning("%d job(s) went back to their place, their attempt unspent", back)
        except RedisAway:
            log.error("could not report to Redis that this worker ends; its jobs are recovered when their leases run out")
            return 1
        log.info("worker %s ended", self.name)
        return 1 if cold else self.parts.burst.code

    # -- status

    def status(self) -> tuple[str, bool]:
        """`stopping`, `busy`, `outdated` or `idle`; ready while a fork server is, unless it is too old for the data."""
        outdated = self.link.outdated
        busy = "busy" if self.executors.busy else "outdated" if outdated else "idle"
        return "stopping" if self.phase >= Phase.DRAINING else busy, self.executors.server.pid is not None and not outdated

    def live(self) -> HealthReport:
        """See `Health`."""
        return self.parts.health.live()

    def ready(self) -> HealthReport:
        """See `Health`."""
        return self.parts.health.ready()

    def measure(self, figures: Figures) -> Callable[[Figures], object] | None:
        """Add slots, memory, duties and the counts of jobs."""
        from fusion.metrics import catalogue

        figures.put(catalogue.SLOTS, self.settings.slots)
        figures.put(catalogue.BUSY, len(self.executors.running))
        figures.put(catalogue.TAKING, not self.admission.blocked)
        figures.put(catalogue.MEMORY, self.parts.recycling.memory)
        figures.put(catalogue.UNCOMMITTED, len(self.outbox.uncommitted()))
        self.consumer.maintenance.measure(figures)
        if self.parts.telemetry is not None:
            self.parts.telemetry.measure(figures)
        tally = self.consumer.history.tally
        return tally.put if tally else None
