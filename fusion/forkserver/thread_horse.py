"""A horse that runs many jobs at once, each in a thread. Loaded by the fork server of a worker that uses it, and by none else."""

from __future__ import annotations

import os
import sys
import threading
from contextvars import copy_context
from queue import SimpleQueue

from fusion.execution.perform import Performer
from fusion.forkserver.horse import EXIT_NO_CHANNEL, HorseSettings, flush_stdio, renew_django_connections
from fusion.forkserver.offspring import note_struck
from fusion.forkserver.shared_line import RunLine, SharedChannel
from fusion.kernel.failpoints import failpoint
from fusion.kernel.striking import ThreadGuard, Watcher
from fusion.kernel.titles import title


def run_jobs(fd: int, settings: HorseSettings) -> int:
    """Run jobs until the worker sends no more and those under way have ended. Returns the exit code."""
    channel = SharedChannel(fd)
    horse = ThreadHorse(channel, settings.performer)
    title("runs jobs in threads")
    channel.serve(horse)
    horse.finish()
    return 0


class ThreadHorse:
    """Runs each job in a thread of its own, which the next one uses again: as many threads as there were jobs at once."""

    def __init__(self, channel: SharedChannel, performer: Performer) -> None:
        self._channel, self._performer = channel, performer
        self._watcher = Watcher()
        self._guards: dict[bytes, ThreadGuard] = {}
        self._jobs: SimpleQueue[tuple[dict[bytes, bytes], RunLine, ThreadGuard]] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0
        self._ended = threading.Event()

    def start(self, fields: dict[bytes, bytes], line: RunLine) -> None:
        """Begin to run a job."""

        def taints(why: str) -> None:
            line.send({b"kind": b"tainted", b"why": why.encode("utf-8", "replace")})

        guard = self._guards[line.execution_id] = ThreadGuard(self._watcher, taints)
        self._jobs.put((fields, line, guard))
        if not self._idle.acquire(blocking=False):
            self._add_thread()

    def _add_thread(self) -> None:
        try:
            threading.Thread(target=self._work, name=f"fusion-{self._threads + 1}", daemon=True).start()
        except RuntimeError:  # the system has no more: the job waits for one that there is
            if not self._threads:
                raise
        else:
            self._threads += 1

    def stop(self, execution_id: bytes) -> None:
        """Ask the task of this run to stop, if it is not over."""
        if (guard := self._guards.get(execution_id)) is not None:
            guard.stop()

    def finish(self) -> None:
        """Wait until nothing runs, once the worker sends no more."""
        while self._guards:
            self._ended.clear()
            if self._guards:
                self._ended.wait()

    def _work(self) -> None:
        try:
            while True:
                # What one job sets in a context variable, decimal's precision say, the next one must not find.
                copy_context().run(self._run, *self._jobs.get())
                flush_stdio()
                if "django.db" in sys.modules:
                    renew_django_connections()
                self._idle.release()
        except BaseException:  # not of a task: nobody would hear of its run any more
            sys.excepthook(*sys.exc_info())
            os._exit(EXIT_NO_CHANNEL)

    def _run(self, fields: dict[bytes, bytes], line: RunLine, guard: ThreadGuard) -> None:
        answer = self._performer.run(fields, line.send, line.offer, line, guard)
        note_struck(answer)
        failpoint("horse.before_outcome")
        self._channel.forget(line.execution_id)
        try:
            line.send(answer)
        except OSError:
            os._exit(EXIT_NO_CHANNEL)
        failpoint("horse.after_outcome")
        del self._guards[line.execution_id]
        self._ended.set()
