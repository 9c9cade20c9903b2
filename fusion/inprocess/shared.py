"""Parts that all threads of one start of a manager share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from math import inf

from fusion.inprocess.clock import Clock
from fusion.inprocess.events import Events
from fusion.inprocess.job import said
from fusion.inprocess.job_queue import JobQueue
from fusion.inprocess.plan import ExecutionPlan
from fusion.inprocess.settings import ManagerSettings


class SharedParts:
    """Parts that all threads use, and the conditions by which they wake each other. The queue's lock guards all changing state."""

    def __init__(self, plan: ExecutionPlan, settings: ManagerSettings, clock: Clock, queue: JobQueue, events: Events) -> None:
        self.plan, self.settings, self.clock, self.queue, self.events = plan, settings, clock, queue, events
        self.lock = queue.lock
        #: True once no job is fetched or pulled any more.
        self.stopping = False
        self._changed = threading.Condition(self.lock)
        self._for_supervisor = threading.Condition(self.lock)
        self._news = False
        #: When the waiting supervisor checks again; inf while it works, as it may have passed some checks already.
        self._looks_at = inf
        self._leaving: list[threading.Thread] = []

    def pause(self, until: Callable[[], float]) -> None:
        """Wait until the time that `until` returns. It is called again after each change."""
        with self.lock:
            while (left := until() - self.clock.now()) > 0:
                self.clock.wait(self._changed, None if left == inf else left)

    def changed(self) -> None:
        """Make all waiting threads check again whether to stop, and memory."""
        with self.lock:
            self.cut_pauses()
            self.queue.wake_all()
            self.inform()

    def cut_pauses(self) -> None:
        """Make all threads in `pause` call `until` again."""
        with self.lock:
            self._changed.notify_all()

    # -- between the threads and their supervisor

    def inform(self) -> None:
        """Make the supervisor check again."""
        with self.lock:
            self._news = True
            self._for_supervisor.notify()

    def expect(self, at: float) -> None:
        """Make the supervisor check at this time, if it would only check later."""
        with self.lock:
            if at < self._looks_at:
                self.inform()

    def leave(self, thread: threading.Thread) -> None:
        """Report that this thread is about to end."""
        with self.lock:
            self._leaving.append(thread)
            self.inform()

    def left(self) -> list[threading.Thread]:
        """Return the threads that called `leave` since the last call."""
        with self.lock:
            leaving, self._leaving = self._leaving, []
            return leaving

    def await_news(self, until: float) -> None:
        """Wait until `inform` is called, or until this time."""
        with self.lock:
            self._looks_at = until
            while not self._news and (left := until - self.clock.now()) > 0:
                self.clock.wait(self._for_supervisor, None if left == inf else left)
            self._news, self._looks_at = False, inf


class CrewThread(threading.Thread):
    """A thread of a manager. It logs the error that ends it, and reports its end by `leave`. It is a daemon: a hanging job never blocks the
    process's exit."""

    def __init__(self, shared: SharedParts, name: str, target: Callable[[], None]) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self.shared = shared
        #: What it is doing, for the log line about its death.
        self.doing = ""

    def run(self) -> None:
        """Run the thread."""
        try:
            super().run()
        except BaseException as error:
            text = f"FATAL: {self.name} dies{self.doing}: {said(error)}"
            self.shared.events.tell("thread_died", logging.CRITICAL, text, worker=self.name)
        finally:
            self.shared.leave(self)
