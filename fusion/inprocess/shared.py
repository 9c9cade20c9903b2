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
    """Parts that every thread uses, and the bells by which threads wake each other. The queue's lock guards all that changes."""

    def __init__(self, plan: ExecutionPlan, settings: ManagerSettings, clock: Clock, queue: JobQueue, events: Events) -> None:
        self.plan, self.settings, self.clock, self.queue, self.events = plan, settings, clock, queue, events
        self.lock = queue.lock
        #: No job is fetched or pulled any more.
        self.stopping = False
        self._changed = threading.Condition(self.lock)
        self._for_supervisor = threading.Condition(self.lock)
        self._news = False
        #: When the supervisor, which waits, looks again; inf while it is at work, as it may have looked past the one or other already.
        self._looks_at = inf
        self._leaving: list[threading.Thread] = []

    def pause(self, until: Callable[[], float]) -> None:
        """Wait until the clock shows this; asked again whenever something has changed."""
        with self.lock:
            while (left := until() - self.clock.now()) > 0:
                self.clock.wait(self._changed, None if left == inf else left)

    def changed(self) -> None:
        """Have all who wait look again: at a stop, at memory."""
        with self.lock:
            self.cut_pauses()
            self.queue.wake_all()
            self.inform()

    def cut_pauses(self) -> None:
        """Have all who are in `pause` ask again until when."""
        with self.lock:
            self._changed.notify_all()

    # -- between the threads and their supervisor

    def inform(self) -> None:
        """Have the supervisor look again."""
        with self.lock:
            self._news = True
            self._for_supervisor.notify()

    def expect(self, at: float) -> None:
        """Have the supervisor look at this time, if it would only do so later."""
        with self.lock:
            if at < self._looks_at:
                self.inform()

    def leave(self, thread: threading.Thread) -> None:
        """Say that this thread is about to end."""
        with self.lock:
            self._leaving.append(thread)
            self.inform()

    def left(self) -> list[threading.Thread]:
        """The threads that said so since the last call."""
        with self.lock:
            leaving, self._leaving = self._leaving, []
            return leaving

    def await_news(self, until: float) -> None:
        """Wait until somebody informs the supervisor, or the clock shows this."""
        with self.lock:
            self._looks_at = until
            while not self._news and (left := until - self.clock.now()) > 0:
                self.clock.wait(self._for_supervisor, None if left == inf else left)
            self._news, self._looks_at = False, inf


class CrewThread(threading.Thread):
    """A thread of a manager. Whatever ends it is told, and it says goodbye. A daemon: a job that hangs holds up no exit of the process."""

    def __init__(self, shared: SharedParts, name: str, target: Callable[[], None]) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self.shared = shared
        #: What it does, for the line that tells of its death.
        self.doing = ""

    def run(self) -> None:
        """The thread's life."""
        try:
            super().run()
        except BaseException as error:
            text = f"FATAL: {self.name} dies{self.doing}: {said(error)}"
            self.shared.events.tell("thread_died", logging.CRITICAL, text, worker=self.name)
        finally:
            self.shared.leave(self)
