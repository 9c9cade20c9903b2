"""The worker's executor: the generation that takes jobs, older ones that drain after a reload, and a new one after a failure."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from fusion.executors.base import Capacity, ExecutorListener, KillCause, Run, ServerStatus
from fusion.executors.concurrent import ConcurrentExecutor
from fusion.executors.concurrent_horse import ConcurrentForkServerClient
from fusion.executors.fork import ForkExecutor
from fusion.executors.session import ExecutorContext, ServerSession
from fusion.executors.warm import WarmExecutor
from fusion.executors.warm_horse import WarmForkServerClient
from fusion.forkserver.client import ForkServerClient
from fusion.forkserver.environment import for_tasks
from fusion.forkserver.messages import ForkServerConfig
from fusion.kernel import bundled
from fusion.kernel.importing import task_modules
from fusion.kernel.linux import core_limit_before
from fusion.runtime.backoff import Backoff
from fusion.runtime.loop import Loop
from fusion.settings import Settings, mask_url
from fusion.store.layout.records import Claimed

_FIRST_RESTART, _LONGEST_RESTART = 0.2, 30.0
#: Fork servers in a row that die before they are ready, until a worker that need not go on gives up.
_STILLBORN = 3


#: One fork server with its horses. Only in the processes of a ForkExecutor no job ever waits behind another.
Generation = ForkExecutor | WarmExecutor | ConcurrentExecutor


class ExecutorGenerations:
    """An `Executor` that keeps a fork server going.

    - a fork server that dies, hangs in an import or can't import a task module is replaced, after growing pauses; no job is claimed
      meanwhile;
    - if it finds a module that can't be forked, it is replaced at once, and each horse imports that module itself;
    - on `reload` a new one takes the next jobs, while those of the old one finish.
    """

    def __init__(self, settings: Settings, loop: Loop, log: logging.Logger) -> None:
        """ConfigurationError if a name of a task module is invalid."""
        self._settings, self._loop, self._log = settings, loop, log
        self._modules = (*(settings.setup or ()), *task_modules(settings.tasks))
        self._listener: ExecutorListener | None = None
        self._current: Generation | None = None
        self._draining: list[Generation] = []
        #: All generations: those that drain, and the current one.
        self._all: list[Generation] = []
        self._late: tuple[str, ...] = ()
        self._log_config = _plain(settings, log)
        #: Default task modules that can't be imported, and why.
        self._without: dict[str, str] = {}
        self._restart_at, self._backoff = 0.0, Backoff(_FIRST_RESTART, _LONGEST_RESTART)
        self._import_timeout = settings.import_timeout
        self._drained = False
        #: The fork server that takes jobs. It is hopeless if its imports failed, or if it keeps dying before it is ready.
        self.server = ServerStatus()
        self._stillborn = 0

    def listen(self, listener: ExecutorListener) -> None:
        """Report to this listener from now on."""
        self._listener = listener

    def _change(self, current: Generation | None) -> None:
        """Set the generation that takes jobs, and list all generations anew."""
        self._current = current
        self._all = [*self._draining, current] if current else [*self._draining]

    @property
    def running(self) -> list[Run]:
        """Return the runs that have begun, or are first in their process."""
        return [run for generation in self._all for run in generation.runs.values()]

    def room(self) -> Capacity:
        """Return what there is room for now. Called for each job, and there may be hundreds of runs, so it must be fast."""
        slots = self._settings.slots
        if self._drained or self._current is None:
            return Capacity(0, slots)
        free, taken, only_high = self._current.room()
        for generation in self._draining:
            taken += generation.room().taken
        return Capacity(max(0, min(slots - taken, free)), taken, only_high)

    @property
    def queued(self) -> list[Run]:
        """Runs that have not begun: prefetched ones, and those that wait for a process of their own."""
        return [run for generation in self._all for run in generation.queued]

    @property
    def busy(self) -> bool:
        """True while anything runs."""
        current = self._current
        if current and (current.runs or current.queued):
            return True
        return bool(self._draining) and any(generation.runs for generation in self._draining)

    @property
    def next_at(self) -> float:
        """Monotonic time of the next `tick` with work, if no event comes first."""
        current, draining = self._current, self._draining
        if (current and current.session.closed) or any(map(_is_over, draining)):
            return 0.0
        if current and not draining:
            return current.next_at
        restart_at = self._restart_at if current is None and not self._drained else inf
        return min([restart_at, *(generation.next_at for generation in self._all)])

    def expect(self) -> None:
        """Wake the process that gets the next job."""
        if self._current is not None and not self._drained:
            self._current.expect()

    def start(self, claimed: Claimed, limit: float, *, behind: int = 0) -> Run | None:
        """Run a job, or queue it behind another. Call it only while there is `room`. None if there is no process for it nevertheless."""
        current = self._current
        if behind:
            return current.prefetch(claimed, limit, behind) if isinstance(current, WarmExecutor) and not self._drained else None
        assert current is not None
        return current.start(claimed, limit)

    def prefetch_room(self, lanes: int, free: int) -> int:
        """Return how many jobs may be prefetched, see `WarmExecutor.prefetch_room`; 0 while jobs of an older fork server have slots too."""
        current = self._current
        if not isinstance(current, WarmExecutor) or self._drained or self._draining:
            return 0
        return current.prefetch_room(lanes, free)

    def exchanged(self, seconds: float, jobs: int) -> None:
        """Record one exchange with Redis, from which the size of the next one follows."""
        current = self._current
        if isinstance(current, (WarmExecutor, ConcurrentExecutor)) and not self._drained:
            current.exchanged(seconds, jobs)

    def recall(self, why: str) -> None:
        """Return the jobs that have not begun."""
        for generation in self._all:
            if not isinstance(generation, ForkExecutor):
                generation.return_queued(why)

    def kill(self, run: Run, cause: KillCause) -> None:
        """Kill a job's process group. `run.killed` is `cause` when its end is reported."""
        for generation in self._all:
            generation.kill(run, cause)

    def tell(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        """Send a frame to the process of a run that waits for it."""
        for generation in self._all:
            generation.tell(run, frame)

    def stop(self, run: Run) -> None:
        """Ask a job's task to stop. If it still runs after the grace, it is killed."""
        for generation in self._all:
            generation.stop(run)

    def pid(self, run: Run) -> int | None:
        """Return the pid of a run; None if it is not known yet: then it is requested."""
        return next((pid for generation in self._all if (pid := generation.pid(run)) is not None), None)

    def tick(self, now: float) -> None:
        """Replace dead fork servers, fork horses, kill what is overdue."""
        for generation in self._all:
            generation.tick(now)
        for generation in list(filter(_is_over, self._draining)):
            generation.close()
            self._draining.remove(generation)
            self._change(self._current)
            self.server = replace(self.server, draining=bool(self._draining))
        if self._current is not None and self._current.session.closed:
            self._replace(self._current.session)
        if self._drained:
            return
        if self._current is None and now >= self._restart_at:
            self._start()
        if self._current is not None and self._current.fill(now):
            self._gained_room(self._current.session)

    def _gained_room(self, session: ServerSession) -> None:
        """Report that a job can be started now. The first time, also log that the fork server is ready."""
        if not session.announced:
            session.announced = True
            self.server = replace(self.server, pid=session.server.pid, unloaded="", hopeless="")
            self._log.info("fork server %d is ready for jobs", session.server.pid)
        self._backoff.reset()
        self._stillborn = 0
        assert self._listener is not None
        self._listener.capacity_changed()

    def flush(self) -> None:
        """Send the prefetched jobs; have the loop send the data that the fork servers' sockets did not take at once."""
        for generation in self._all:
            if not isinstance(generation, ForkExecutor):
                generation.send_queued()
            if generation.session.server.unsent:
                generation.session.flush()

    def reload(self) -> None:
        """Start a new fork server; it takes the next jobs, running ones finish in the old."""
        if self._current is not None:
            self._current.drain()
            self._draining.append(self._current)
            self._change(None)
            self.server = replace(self.server, pid=None, draining=True)
        self._late, self._without = (), {}
        self._restart_at = 0.0
        self._backoff.reset()

    def drain(self) -> None:
        """Take no more jobs."""
        self._drained = True
        if self._current is not None:
            self._current.drain()

    def close(self) -> None:
        """End all fork servers and their runs."""
        for generation in self._all:
            generation.close()

    def _start(self) -> None:
        settings = self._settings
        config = ForkServerConfig(
            tasks=settings.tasks,
            modules=tuple(module for module in self._modules if module not in self._without),
            late=self._late,
            without=self._without,
            preload=settings.preload,
            sys_path=tuple(sys.path),
            grace=settings.timeout_grace,
            max_result=settings.max_result,
            allow_pickle=settings.allow_pickle,
            middleware=settings.middleware or (),
            executor=settings.executor or "process",
            places=settings.places,
            before_fork=settings.before_fork,
            after_fork=settings.after_fork,
            log_config=self._log_config,
            log_json=settings.log_json,
            job_logs=settings.job_logs,
            environment=for_tasks(settings, os.environ),
            core=core_limit_before(),
        )
        self.server = replace(self.server, generation=self.server.generation + 1)
        if self.server.generation == 1 and (both := bundled.settle()):
            self._log.warning(
                "the module tasks is %s, in place of Fusion's own in %s; names like tasks.sms.sendSMS mean Fusion's unless yours has them",
                *both,
            )
        assert self._listener is not None
        context = ExecutorContext(settings, self._loop, self._log, self._listener, self._import_timeout)
        try:
            if config.executor == "process":
                self._change(ForkExecutor(ForkServerClient(config), context))
            elif config.executor == "pool":
                self._change(WarmExecutor(WarmForkServerClient(config), context))
            else:
                self._change(ConcurrentExecutor(ConcurrentForkServerClient(config), context))
        except OSError as error:
            self._postpone(f"the fork server can't be started: {error.strerror}")

    def _replace(self, session: ServerSession) -> None:
        """Log why the fork server ended, and plan the next one."""
        self._change(None)
        self.server = replace(self.server, pid=None)
        if session.tainted is not None:
            self._log.warning("%s %s: each job's process imports it itself", session.tainted.module, session.tainted.reason)
            module = session.tainted.module
            # Other modules need a setup module, so the horses import those too.
            self._late = self._modules if module in (self._settings.setup or ()) else (*self._late, module)
            return
        if self._drained:
            return
        if self._goes_on_without(session):
            return
        if session.import_failed is not None:
            failed = session.import_failed
            error, trace = mask_url(failed.error), mask_url(failed.traceback.rstrip())
            self._log.error("task module %s can't be imported: %s\n%s", failed.module, error, trace)
            hopeless = f"task module {failed.module} can't be imported"
            self.server = replace(self.server, unloaded=f"{failed.module}: {error}", hopeless=hopeless)
            if session.ready:  # each horse imports it itself, and may have been killed meanwhile
                self._import_timeout *= 2
        else:
            importing = session.server.importing
            if not session.ready:
                why = (
                    f"{importing}: its import takes the process down, or does not end"
                    if importing
                    else "no process starts for them"
                )
                self.server = replace(self.server, unloaded=why)
            self._log.error("the fork server ended%s", f" while it imported {importing}" if importing else "")
            if importing and not session.ready:
                self._import_timeout *= 2  # give a slow import more time
            self._stillborn += not session.announced
            if self._stillborn >= _STILLBORN:
                self.server = replace(self.server, hopeless="the fork server does not start")
        self._postpone("no job is claimed meanwhile")

    def _goes_on_without(self, session: ServerSession) -> bool:
        """Return True if the fork server ended because of a default module: the next one goes on without it."""
        failed = session.import_failed
        module = failed.module if failed else None if session.ready else session.server.importing
        unnamed = self._settings.unnamed_tasks
        if module not in unnamed or module in self._without or set(self._settings.tasks) <= set(unnamed):
            return False
        why = mask_url(failed.error) if failed else "its import takes the process down, or does not end"
        self._log.warning(
            "the default task module %s can't be imported: %s; the worker goes on without it, and leaves its tasks to others",
            module,
            why,
        )
        if failed and failed.traceback:
            self._log.debug("%s", mask_url(failed.traceback.rstrip()))
        self._without = {**self._without, module: why}
        return True

    def _postpone(self, why: str) -> None:
        pause = self._backoff.next()
        self._log.error("%s; next try in %.1f s", why, pause)
        self._restart_at = time.monotonic() + pause


def _plain(settings: Settings, log: logging.Logger) -> dict[str, Any] | None:
    """Return DICT_CONFIG in a form for other processes; None, with a warning, if that is impossible."""
    if settings.dict_config is None:
        return None
    try:
        found: dict[str, Any] = json.loads(json.dumps(dict(settings.dict_config)))
    except (TypeError, ValueError) as error:
        log.warning(
            "jobs log without dict_config (from %s): %s; name what it holds, as 'ext://sys.stderr' and 'shop.logs.Handler'",
            settings.origin_of("dict_config"),
            error,
        )
        return None
    return found


def _is_over(generation: Generation) -> bool:
    return generation.session.closed or not (generation.runs or generation.session.leaving)
