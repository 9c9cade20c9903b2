"""Commands that a worker receives over its channel: quiet, unquiet, shutdown, stop a job, kill all."""

from __future__ import annotations

from collections.abc import Callable

from fusion.executors.base import Executor, KillCause
from fusion.runtime.commands import KILL_HORSE, LOOK, QUIET, SHUTDOWN, STOP_JOB, UNQUIET, Command, Commands
from fusion.runtime.consumer import Consumer
from fusion.runtime.context import ProcessContext
from fusion.runtime.job_log import one_line
from fusion.worker.stop_requests import StopRequests


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
            process.connect_blocking, lambda: keys.pubsub(consumer.name), keys.pubsub("_fleet"), self._on_subscribed
        )

    def follow(self) -> None:
        """Keep the loop in step with the subscription."""
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
        if self._executor.running or self._executor.queued:
            self._consumer.membership.beat_now()
