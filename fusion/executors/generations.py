"""The worker's executors: the one that takes jobs, those that drain after a reload, and the next one after a failure."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from functools import partial

from fusion.executors.fork import ForkExecutor, Run
from fusion.executors.warm import WarmExecutor
from fusion.executors.warm_pool import Terms
from fusion.forkserver.environment import for_tasks
from fusion.forkserver.messages import ForkServerConfig, HorseExited
from fusion.kernel.importing import task_modules
from fusion.kernel.linux import core_limit_before
from fusion.runtime.loop import Loop
from fusion.settings import Settings, mask_url
from fusion.store.layout.records import Claimed

_CHECK_INTERVAL = 0.25
_FIRST_RESTART, _LONGEST_RESTART = 0.2, 30.0
#: Fork servers in a row that died before they were ready, after which a worker that need not go on gives up.
_STILLBORN = 3


class ExecutorGenerations:
    """Keeps a fork server going.

    - one that dies, hangs on an import or can't import a task module is replaced, with growing pauses; nothing is claimed meanwhile;
    - one that finds a module that can't be forked is replaced at once, with that module left to the horses;
    - on `reload` a new one takes the next jobs while the old one's finish.
    """

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        log: logging.Logger,
        on_frame: Callable[[Run, dict[bytes, bytes]], None],
        on_death: Callable[[Run, HorseExited | None], None],
        terms: Terms,
    ) -> None:
        self._settings, self._loop, self._log = settings, loop, log
        self._modules = task_modules(settings.tasks)  # wrong ones are told before the worker enters any list
        self._on_frame, self._on_death, self._terms = on_frame, on_death, terms
        self._current: ForkExecutor | None = None
        self._draining: list[ForkExecutor] = []
        self._late: tuple[str, ...] = ()
        self._restart_at, self._pause = 0.0, _FIRST_RESTART
        self._import_timeout = settings.import_timeout
        self._check_at = 0.0
        self._retired = False
        #: Counts the fork servers.
        self.generation = 0
        #: Why there may never be one: its imports failed, or it died before it was ready again and again.
        self.hopeless = ""
        self._stillborn = 0

    @property
    def _all(self) -> list[ForkExecutor]:
        return [*self._draining, self._current] if self._current else self._draining

    @property
    def runs(self) -> list[Run]:
        return [run for stable in self._all for run in stable.runs.values()]

    @property
    def waiting(self) -> list[Run]:
        """Jobs that are with a horse and have not begun."""
        return [run for stable in self._all for run in stable.waiting]

    @property
    def busy(self) -> bool:
        return any(stable.runs for stable in self._all)

    @property
    def free(self) -> int:
        """Jobs that could be handed out now."""
        if self._retired or self._current is None or not self._current.free:
            return 0
        under_way = sum(len(stable.runs) for stable in self._all)
        return max(0, min(self._settings.slots - under_way, self._current.free))

    @property
    def next_at(self) -> float:
        """When `tend` has something to do though nothing happened."""
        soonest = min(self._check_at, self._restart_at) if self._current is None else self._check_at
        return min([soonest, *(stable.look_at for stable in self._all)])

    @property
    def server_pid(self) -> int | None:
        """The fork server that takes jobs; None while there is none, or it still loads."""
        return self._current.server.pid if self._current is not None and self._current.announced else None

    @property
    def draining(self) -> bool:
        """Whether an older fork server still has jobs under way."""
        return bool(self._draining)

    def hand_out(self, claimed: Claimed, limit: float) -> Run | None:
        """Run a job; only while `free`. None if there is no process for it after all."""
        assert self._current is not None
        return self._current.hand_out(claimed, limit)

    def room(self, horses: int, free: int) -> int:
        """Jobs that may be claimed to wait behind others, see `ForkExecutor.room`; none while jobs of an older fork server have slots too."""
        return self._current.room(horses, free) if self._current is not None and not self._retired and not self._draining else 0

    def turned(self, seconds: float, jobs: int) -> None:
        """See `ForkExecutor.turned`."""
        if self._current is not None:
            self._current.turned(seconds, jobs)

    def put_behind(self, claimed: Claimed, limit: float, horses: int) -> Run | None:
        """Let a job wait behind another; None if it can't."""
        return self._current.put_behind(claimed, limit, horses) if self._current is not None and not self._retired else None

    def kill(self, run: Run, why: str) -> None:
        """Kill a job's process group. `why` stands in `run.killed` when its death is told."""
        for stable in self._all:
            if run in stable.runs.values() or run in stable.waiting:
                stable.kill(run, why)

    def take_back(self, why: str) -> None:
        """Give back the jobs that have not begun."""
        for stable in self._all:
            stable.take_back(why)

    def tend(self, now: float) -> bool:
        """Replace, refill, insist on what is overdue. True if there is room for a job that was not there before."""
        if now >= self._check_at:
            self._check_at = now + _CHECK_INTERVAL
            for stable in self._all:
                stable.check(now)
        for stable in self._all:
            if now >= stable.look_at:
                stable.look(now)
        for stable in [s for s in self._draining if s.closed or s.idle]:
            stable.close()
            self._draining.remove(stable)
        if self._current is not None and self._current.closed:
            self._bury(self._current)
        if self._retired:
            return False
        if self._current is None and now >= self._restart_at:
            self._start()
        if self._current is None:
            return False
        before = self._current.free
        self._current.fill(now)
        if before or not self._current.free:
            return False
        if not self._current.announced:
            self._current.announced = True
            self._log.info("fork server %d is ready for jobs", self._current.server.pid)
        self._pause = _FIRST_RESTART
        self._stillborn, self.hopeless = 0, ""
        return True

    def flush(self) -> None:
        for stable in self._all:
            stable.flush()

    def reload(self) -> None:
        if self._current is not None:
            self._current.retire()
            self._draining.append(self._current)
            self._current = None
        self._late = ()
        self._restart_at, self._pause = 0.0, _FIRST_RESTART

    def retire(self) -> None:
        """Take no more jobs."""
        self._retired = True
        if self._current is not None:
            self._current.retire()

    def close(self) -> None:
        for stable in self._all:
            stable.close()

    def _start(self) -> None:
        settings = self._settings
        config = ForkServerConfig(
            tasks=settings.tasks,
            modules=self._modules,
            late=self._late,
            preload=settings.preload,
            sys_path=tuple(sys.path),
            grace=settings.timeout_grace,
            max_result=settings.max_result,
            allow_pickle=settings.allow_pickle,
            warm=settings.horses is not None,
            before_fork=settings.before_fork,
            after_fork=settings.after_fork,
            environment=for_tasks(settings, os.environ),
            core=core_limit_before(),
        )
        make = partial(WarmExecutor, terms=self._terms) if config.warm else ForkExecutor
        self.generation += 1
        try:
            self._current = make(
                config,
                self._loop,
                self._log,
                spares=settings.slots + 1,
                import_timeout=self._import_timeout,
                on_frame=self._on_frame,
                on_death=self._on_death,
            )
        except OSError as error:
            self._postpone(f"the fork server can't be started: {error.strerror}")

    def _bury(self, stable: ForkExecutor) -> None:
        self._current = None
        if stable.tainted is not None:
            self._log.warning("%s %s: each job's process imports it itself", stable.tainted.module, stable.tainted.reason)
            self._late += (stable.tainted.module,)
            return
        if self._retired:
            return
        if stable.import_failed is not None:
            failed = stable.import_failed
            error, trace = mask_url(failed.error), mask_url(failed.traceback.rstrip())
            self._log.error("task module %s can't be imported: %s\n%s", failed.module, error, trace)
            self.hopeless = f"task module {failed.module} can't be imported"
        else:
            importing = stable.server.importing
            self._log.error("the fork server ended%s", f" while it imported {importing}" if importing else "")
            if importing and not stable.ready:
                self._import_timeout *= 2  # a slow import must not be cut off for ever
            self._stillborn += not stable.announced
            if self._stillborn >= _STILLBORN:
                self.hopeless = "the fork server does not start"
        self._postpone("no job is claimed meanwhile")

    def _postpone(self, why: str) -> None:
        self._log.error("%s; next try in %.1f s", why, self._pause)
        self._restart_at = time.monotonic() + self._pause
        self._pause = min(_LONGEST_RESTART, self._pause * 2)
