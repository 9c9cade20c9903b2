"""Requests to a worker: it obeys commands, answers health probes, and ends when a burst is over."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from fusion.executors.base import Executor, KillCause
from fusion.runtime.commands import KILL_HORSE, LOOK, QUIET, SHUTDOWN, STOP_JOB, UNQUIET, Command, Commands
from fusion.runtime.consumer import Consumer
from fusion.runtime.context import ProcessContext
from fusion.runtime.failover_watch import FailoverWatch
from fusion.runtime.job_log import one_line
from fusion.runtime.membership import Membership
from fusion.runtime.probes import HealthReport
from fusion.runtime.redis_link import RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.settings import Settings
from fusion.store.layout.records import Turn
from fusion.store.layout.slots import tag_of
from fusion.store.read.blocked import blocked_jobs, in_words
from fusion.store.write.broker import Broker
from fusion.worker.admission import Admission, Blocked
from fusion.worker.blocked import HELD
from fusion.worker.probation import Probation
from fusion.worker.stop_requests import StopRequests

#: Exit code of a burst that ended with jobs in its queues that it could not run, as it lacks their tasks.
LEFT = 3


class CommandHandler:
    """Receives commands and has the parts of a worker obey them.

    `set_quiet`: stops taking jobs, or takes them again. `drain`: ends the worker once the running jobs are done; with the reason.
    """

    def __init__(
        self,
        process: ProcessContext,
        consumer: Consumer,
        executor: Executor,
        stop_requests: StopRequests,
        set_quiet: Callable[[bool], None],
        drain: Callable[[str], None],
    ) -> None:
        self._consumer, self._executor, self._stop_requests = consumer, executor, stop_requests
        self._set_quiet, self._drain, self._loop, self._log = set_quiet, drain, process.loop, process.log
        keys = process.broker.keys
        self.commands = Commands(
            process.connect_blocking,
            lambda: keys.pubsub(consumer.name),
            keys.pubsub("_fleet"),
            self._on_subscribed,
            duties=(process.broker.duties, keys.due),
            on_duty=consumer.maintenance.heard,
            sharded=bool(tag_of(keys.prefix)),
        )
        consumer.membership.on_renamed = self.commands.renew
        #: The connection that the loop watches.
        self.followed: object | None = None

    def follow(self) -> None:
        """Keep the loop in step with the subscription."""
        self.followed = self.commands.channel
        self._loop.follow("commands", self.commands.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        for command in self.commands.receive():
            if command.name == LOOK:
                self._consumer.request_turn()
            else:
                self._log.info("command: %s", one_line(f"{command.name} {command.job_id}".rstrip(), 100))
                self._obey(command)

    def _obey(self, command: Command) -> None:
        name = command.name
        if name in (QUIET, UNQUIET):
            self._set_quiet(name == QUIET)
        elif name == SHUTDOWN:
            self._drain("command")
        elif name == STOP_JOB:
            self._stop_requests.obey(command)
        elif name == KILL_HORSE:
            for run in list(self._executor.running):
                self._executor.kill(run, KillCause.COMMAND)

    def _on_subscribed(self) -> None:
        """Send a heartbeat: its reply names the jobs that were stopped while this worker was not subscribed."""
        if self._executor.busy:
            self._consumer.membership.beat_now()


class Health:
    """The health of one worker. A suspended worker stays ready: an operator suspended it, and a roll-out must still succeed."""

    def __init__(
        self,
        settings: Settings,
        membership: Membership,
        link: RedisLink,
        executor: Executor,
        admission: Admission,
        failover: FailoverWatch,
    ) -> None:
        self._settings, self._membership, self._link, self._failover = settings, membership, link, failover
        self._executor, self._admission = executor, admission
        # The longest waits of one round: the sleep until the next timer, and one attempt to reach Redis.
        self._patience = 2 * max(settings.idle_wait, settings.socket_timeout)
        #: When the loop began its last round.
        self.turned_at = time.monotonic()

    def live(self) -> HealthReport:
        """Report whether the loop turns. A long pause is reported once the loop turns again; a loop that hangs for good does not answer."""
        silent = time.monotonic() - self.turned_at
        reasons = [f"the loop did not turn for {silent:.1f} s"] if silent > self._patience else []
        return HealthReport(reasons, {"worker": self._membership.name, "pid": os.getpid()})

    def ready(self) -> HealthReport:
        """Report whether the worker takes jobs and Redis answers."""
        blocked = self._admission.blocked
        reasons = [Blocked.RECYCLING.value] if Blocked.RECYCLING in blocked else []
        reasons += self._link.trouble
        if Blocked.NO_EXECUTOR in blocked:
            why = self._executor.server.unloaded
            reasons.append(f"can't load tasks: {why}" if why else Blocked.NO_EXECUTOR.value)
        if Blocked.THROTTLED in blocked:
            reasons.append(f"{Blocked.THROTTLED.value}: {self._admission.scarce}")
        if Blocked.QUIET in blocked:
            reasons.append(Blocked.QUIET.value)
        facts = {"running": len(self._executor.running), "slots": self._settings.slots, "suspended": Blocked.SUSPENDED in blocked}
        return HealthReport(reasons, {**self.live().facts, **facts}, self._failover.warnings)


class Burst:
    """Decides when a worker with `--burst` ends. `code`: its exit code, unless it ends for another reason."""

    def __init__(
        self,
        on: bool,
        broker: Broker,
        link: RedisLink,
        served_queues: ServedQueues,
        executor: Executor,
        log: logging.Logger,
    ) -> None:
        self.on = on
        self.code = 0
        self._broker, self._link, self._served_queues, self._executor, self._log = broker, link, served_queues, executor, log

    def is_over(self, turn: Turn, probation: Probation) -> bool:
        """Return True if no work is left. Call it while nothing runs, after a turn without jobs. Jobs that are due now count as work."""
        if probation.pending or turn.waits is not None or turn.opens_in is not None:
            return False
        if turn.status == "ok" and turn.next_in is not None and turn.next_in <= 0:
            self._link.attempt(self._broker.promote)
            return False
        released, release_in = self._link.attempt(self._broker.release)
        if released or release_in == 0:  # other jobs waited for the last one that ended
            return False
        blocked = self._link.attempt(lambda: blocked_jobs(self._broker.connection, self._broker.keys))
        held = [one for one in blocked if one.kind == HELD and self._served_queues.serves(one.queue)]
        for one in held:
            self._log.warning("%s", in_words(one))
        if held:
            self.code = LEFT
            self._log.warning("nothing left to do but %d held job(s): the burst ends", sum(one.count for one in held))
        else:
            self._log.info("nothing left to do: the burst ends")
        return True

    def is_hopeless(self) -> bool:
        """Return True if no job can ever run here. A burst does not wait until a person repairs the cause."""
        if not (self.on and self._executor.server.hopeless):
            return False
        self.code = 1
        self._log.error("%s: the burst ends; see --tasks", self._executor.server.hopeless)
        return True
