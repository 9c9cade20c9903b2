"""When a worker has served long enough: limits on jobs, idleness, age and memory. It then ends warm, and its supervisor starts a fresh one."""

from __future__ import annotations

import logging
import os
import random
import time

from fusion.executors.generations import ExecutorGenerations
from fusion.kernel.linux import rss
from fusion.runtime.signals import Signals
from fusion.runtime.supervised import SupervisorLine
from fusion.settings import Settings

log = logging.getLogger("fusion.worker")

_MIB = 1024**2
#: Seconds between two looks at memory.
_LOOK_INTERVAL = 0.5
#: Workers that were started together must not all be away at once: each takes up to this share off its age.
_AGE_SPREAD = 0.1


class Recycling:
    """Why one worker ends, other than by a signal: its supervisor, or a limit; each limit is off unless its setting is given."""

    def __init__(self, settings: Settings, executors: ExecutorGenerations, signals: Signals, reporter: SupervisorLine) -> None:
        self._settings, self._executors, self._signals = settings, executors, signals
        self.reporter = reporter
        self._jobs = 0
        self._idle_since: float | None = None
        age = settings.max_age
        self._old_at = time.monotonic() + age * random.uniform(1 - _AGE_SPREAD, 1) if age else float("inf")
        self._look_at = 0.0
        self._server: tuple[int | None, int] = (None, 0)

    def took(self, jobs: int) -> None:
        """So many jobs were handed out, or came back."""
        self._jobs += jobs

    def room(self, free: int) -> int:
        """How many of `free` slots may take a job: never more than the limit of jobs leaves."""
        limit = self._settings.max_jobs
        return free if limit is None else max(0, min(free, limit - self._jobs))

    def heed(self, now: float, *, settled: bool, stopping: bool, outdated: bool = False) -> str:
        """Tell the supervisor how it goes; why to end now, empty if there is no reason. `settled`: Redis knows everything;
        `outdated`: the worker is too old for the data."""
        busy = self._executors.busy
        state = "stopping" if stopping else "busy" if busy else "outdated" if outdated else "idle"
        self.reporter.beat(now, state, ready=self._executors.server_pid is not None and not outdated)
        if self.reporter.impatient(now):
            self._signals.quit = self._signals.noted = True
        if self.reporter.released:
            return "the supervisor"
        return "" if stopping else self._due(now, idle=settled and not busy) or self._look(now)

    def _due(self, now: float, *, idle: bool) -> str:
        s = self._settings
        if s.max_jobs is not None and self._jobs >= s.max_jobs:
            return f"it took {self._jobs} jobs, --max-jobs"
        if now >= self._old_at:
            return f"its time is over, --max-age {s.max_age:g}"
        if not idle or self._executors.server_pid is None:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif s.max_idle_time and now - self._idle_since >= s.max_idle_time:
            return f"nothing to do for {now - self._idle_since:.1f} s, --max-idle-time"
        return ""

    def _look(self, now: float) -> str:
        server = self._executors.server_pid
        if now < self._look_at or server is None:
            return ""
        self._look_at = now + _LOOK_INTERVAL
        limit, size = self._settings.max_memory, rss(server) // _MIB
        # Before its first job a worker is as small as it gets: another one would be no better.
        if limit and self._jobs and (used := size + rss(os.getpid()) // _MIB) > limit:
            return f"it uses {used} MiB, --max-memory {limit}"
        self._replace_grown(server, size)
        return ""

    def _replace_grown(self, server: int, size: int) -> None:
        """What a fork server leaks every job's process inherits: a new one takes over, and nothing else has to stop."""
        known, first = self._server
        if server != known:
            self._server = server, size
        elif size - first > self._settings.forkserver_growth and not self._executors.draining:
            log.warning("fork server %d has grown from %d to %d MiB: a new one takes the next jobs", server, first, size)
            self._executors.reload()
