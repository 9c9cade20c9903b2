"""A horse that runs many jobs at once, each in a thread. Only the fork server of a worker that uses it loads this module."""

from __future__ import annotations

import os
import sys
import threading
from _thread import allocate_lock
from collections import deque
from contextvars import copy_context

from fusion.execution.perform import Performer
from fusion.forkserver.flusher import Flusher
from fusion.forkserver.horse import EXIT_NO_CHANNEL, HorseSettings, renew_django_connections
from fusion.forkserver.offspring import note_struck
from fusion.forkserver.shared_line import RunLine, SharedChannel
from fusion.kernel.failpoints import failpoint
from fusion.kernel.striking import ThreadGuard, Watcher
from fusion.kernel.titles import title

#: What a thread gets: a job, its line, and the guard of its limits.
_Job = tuple[dict[bytes, bytes], RunLine, ThreadGuard]


def run_jobs(fd: int, settings: HorseSettings) -> int:
    """Run jobs until the worker sends no more and all have ended. Return the exit code."""
    channel = SharedChannel(fd)
    horse = ThreadHorse(channel, settings.performer)
    title("runs jobs in threads")
    channel.serve(horse)
    horse.finish()
    try:
        channel.flush()
    except OSError:
        return EXIT_NO_CHANNEL
    return 0


class ThreadHorse:
    """Runs each job in its own thread, and reuses threads: there are as many as there were jobs at once. A job wakes only the thread that
    gets it."""

    def __init__(self, channel: SharedChannel, performer: Performer) -> None:
        self._channel, self._performer = channel, performer
        self._watcher = Watcher()
        self._guards: dict[bytes, ThreadGuard] = {}
        #: Idle threads; the last one to become idle gets the next job.
        self._idle: list[_Hand] = []
        #: Jobs for which the system had no thread.
        self._waiting: deque[_Job] = deque()
        self._threads = 0
        self._flusher = Flusher()
        self._finishing, self._ended = False, threading.Event()

    def start(self, fields: dict[bytes, bytes], line: RunLine) -> None:
        """Begin to run a job."""

        def taints(why: str) -> None:
            line.send({b"kind": b"tainted", b"why": why.encode("utf-8", "replace")})

        guard = self._guards[line.execution_id] = ThreadGuard(self._watcher, taints)
        job = fields, line, guard
        try:
            hand = self._idle.pop()
        except IndexError:
            self._add_thread(job)
        else:
            hand.give(job)

    def _add_thread(self, job: _Job) -> None:
        hand = _Hand()
        hand.give(job)
        try:
            threading.Thread(target=self._work, args=(hand,), name=f"fusion-{self._threads + 1}", daemon=True).start()
        except RuntimeError:  # the system has no thread left: the job waits for an existing one
            if not self._threads:
                raise
            self._waiting.append(job)
            self._hand_out()
        else:
            self._threads += 1

    def _hand_out(self) -> None:
        """Give waiting jobs to idle threads. Can be called from any thread."""
        while self._waiting:
            try:
                hand = self._idle.pop()
            except IndexError:
                return
            try:
                hand.give(self._waiting.popleft())
            except IndexError:  # another thread was faster
                self._idle.append(hand)

    def stop(self, execution_id: bytes) -> None:
        """Ask the task of this run to stop, unless it is over."""
        if (guard := self._guards.get(execution_id)) is not None:
            guard.stop()

    def finish(self) -> None:
        """Wait until nothing runs, once the worker sends no more."""
        self._finishing = True
        while self._guards:
            self._ended.clear()
            if self._guards:
                self._ended.wait()

    def _work(self, hand: _Hand) -> None:
        try:
            while True:
                # A context variable that one job sets, such as decimal's precision, must not reach the next one.
                copy_context().run(self._run, *hand.wait())
                self._flusher.flush_soon()
                if "django.db" in sys.modules:
                    renew_django_connections()
                self._idle.append(hand)
                self._hand_out()
        except BaseException:  # not raised by a task: its run would never get an outcome
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
        if self._finishing:
            self._ended.set()


class _Hand:
    """An idle thread, as other threads use it."""

    __slots__ = ("_called", "_job")

    def __init__(self) -> None:
        self._job: _Job | None = None
        self._called = allocate_lock()
        self._called.acquire()

    def give(self, job: _Job) -> None:
        """Wake the thread with a job."""
        self._job = job
        self._called.release()

    def wait(self) -> _Job:
        """Wait for a job in this thread; return it."""
        self._called.acquire()
        job, self._job = self._job, None
        assert job is not None
        return job
