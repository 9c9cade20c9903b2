"""Recycling: a worker that has served long enough ends warm, and its supervisor starts a fresh one."""

from __future__ import annotations

import logging
import os
import random
import time
from math import inf

from fusion.executors.base import Executor
from fusion.kernel import sentences
from fusion.kernel.linux import rss
from fusion.settings import Settings

log = logging.getLogger("fusion.worker")

_MIB = 1024**2
#: Seconds between two measurements of memory.
_INTERVAL = 0.5
#: Share by which memory must change before the new value is shown.
_MUCH = 0.2
#: Each worker takes up to this share off its age limit, so that workers that started together don't all restart at once.
_AGE_SPREAD = 0.1


class Recycling:
    """Decides when a worker has reached a limit on jobs, age, idle time or memory. A limit is off unless its setting is given.

    A fork server that has grown is replaced; the worker does not end for that.
    """

    def __init__(self, settings: Settings, executor: Executor) -> None:
        self._settings, self._executor = settings, executor
        #: The jobs that were started, without those that did not begin.
        self.jobs = 0
        self._idle_since: float | None = None
        age = settings.max_age
        self._old_at = time.monotonic() + age * random.uniform(1 - _AGE_SPREAD, 1) if age else inf
        self._measure_at = 0.0
        self._server: tuple[int | None, int] = (None, 0)
        #: Resident bytes of the worker and its fork server, for display: updated when they change by much; 0 while unknown.
        self.memory = 0
        #: True once the worker ends: then no limit matters any more.
        self.over = False
        #: True if a limit may be reached while nothing else happens.
        self.has_times = bool(age or settings.max_idle_time or settings.max_memory)

    def room(self, free: int) -> int:
        """Return the number of jobs that may be taken for `free` slots: at most what is left of the job limit."""
        limit = self._settings.max_jobs
        return free if limit is None else max(0, min(free, limit - self.jobs))

    @property
    def next_at(self) -> float:
        """The time to check again without other events. An idle worker measures memory only when it wakes anyway."""
        if self.over:
            return inf
        idle = self._settings.max_idle_time
        idle_at = self._idle_since + idle if idle and self._idle_since is not None else inf
        measure_at = self._measure_at if self._settings.max_memory and self._executor.busy else inf
        return min(measure_at, idle_at, self._old_at)

    def tick(self, now: float, *, settled: bool, waits: bool = False) -> str:
        """Measure what is due. Return why the worker should end, empty if there is no reason.

        `settled`: all outcomes are committed. `waits`: claimed jobs still wait for their batched call.
        """
        if self.over:
            return ""
        why = self._due(now, settled, waits)
        return why or (self._measure(now) if now >= self._measure_at else "")

    def _due(self, now: float, settled: bool, waits: bool) -> str:
        s = self._settings
        # Waiting jobs are not given back for this limit: they would end the next worker in the same way.
        if s.max_jobs is not None and self.jobs >= s.max_jobs and not waits:
            return f"it took {self.jobs} jobs, --max-jobs"
        if now >= self._old_at:
            return f"its time is over, --max-age {s.max_age:g}"
        if not s.max_idle_time:
            return ""
        if not settled or waits or self._executor.busy or self._executor.server.pid is None:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= s.max_idle_time:
            return f"nothing to do for {now - self._idle_since:.1f} s, --max-idle-time"
        return ""

    def _measure(self, now: float) -> str:
        server = self._executor.server.pid
        if server is None:
            return ""
        self._measure_at = now + _INTERVAL
        limit, size = self._settings.max_memory, rss(server) // _MIB
        used = size + rss(os.getpid()) // _MIB
        if abs(used * _MIB - self.memory) > _MUCH * self.memory:
            self.memory = used * _MIB
        # Before its first job a worker is as small as possible: a new one would not be smaller.
        if limit and self.jobs and used > limit:
            return sentences.MEMORY_LIMIT.format(n=used, n_limit=limit)
        self._replace_grown(server, size)
        return ""

    def _replace_grown(self, server: int, size: int) -> None:
        """Reload a fork server that has grown: every job's process inherits what it leaks. Nothing else has to stop."""
        known, first = self._server
        if server != known:
            self._server = server, size
        elif size - first > self._settings.forkserver_growth and not self._executor.server.draining:
            log.warning("fork server %d has grown from %d to %d MiB: a new one takes the next jobs", server, first, size)
            self._executor.reload()
