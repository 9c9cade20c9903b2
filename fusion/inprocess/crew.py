"""The threads of one start of a manager, and the supervisor that keeps them."""

from __future__ import annotations

import logging
import threading
from math import inf
from typing import Any

from fusion.inprocess.job import ActiveRun, Outcome, said
from fusion.inprocess.master import Master
from fusion.inprocess.shared import CrewThread, SharedParts
from fusion.inprocess.worker import Worker, settle
from fusion.kernel.memory import MemoryThrottle
from fusion.runtime.backoff import Backoff

#: Seconds until the supervisor repeats a failed step, such as starting a thread: the first pause, and the longest.
_FIRST, _LONGEST = 1.0, 60.0
#: Seconds to wait for a thread's end after its goodbye, before a later check: meanwhile thread-local data of its jobs is destroyed.
_GOODBYE = 0.5
#: Seconds between two checks for threads that ended without a goodbye.
_SWEEP = 5.0


class Crew:
    """Master, workers, and the supervisor, which starts them, replaces ended ones, reports overdue jobs, and measures memory.

    The crew ends with the last of these threads, so a job that hangs keeps it alive.
    """

    def __init__(self, shared: SharedParts, total: int, throttle: MemoryThrottle) -> None:
        self._shared, self.total, self._throttle = shared, total, throttle
        self.master = Master(shared)
        self._supervisor = CrewThread(shared, "Supervisor", self._supervise)
        self._master_thread: CrewThread | None = None
        self._master_at = self._workers_at = 0.0
        self._workers: list[Worker] = []
        #: Threads that don't count as workers: those of overdue jobs, and stand-ins.
        self._others: list[CrewThread] = []
        #: Numbers of the workers to replace, and when each replacement may begin.
        self._vacant: list[tuple[int, float]] = []
        self._first_starts = 0
        self._last_number = total
        self._backoff = Backoff(_FIRST, _LONGEST)
        self._over = False

    def start(self) -> None:
        """Start the supervisor, which starts the other threads. RuntimeError if the system has no thread left."""
        self._shared.queue.pause(False)
        self._supervisor.start()

    def stop(self) -> None:
        """Make all threads end: running jobs finish, no job is pulled, and queued jobs stay Pending."""
        with self._shared.lock:
            if self._shared.stopping:
                return
            self._shared.stopping = True
            dropped = self._shared.queue.clear()
            self._shared.changed()
        self._tell("stopping", logging.INFO, f"Stopping: {len(self._mine())} jobs are active, {dropped} queued ones stay Pending")

    def join(self, timeout: float | None) -> bool:
        """Wait until all threads have ended after a stop. False after `timeout` seconds, or at once if called in one of these threads."""
        shared = self._shared
        if self.has(threading.current_thread()) or (timeout == 0 and not self._over):
            return False
        until = inf if timeout is None else shared.clock.now() + timeout
        shared.pause(lambda: -inf if self._over else until)
        if self._over:
            self._supervisor.join()
            return True
        hanging = ", ".join(f"{run.thread.name} with job {run.job.label}" for run in self._mine())
        text = f"FATAL: not stopped in time: {hanging or 'the master, in a call of the plan'}"
        self._tell("overdue", logging.CRITICAL, text)
        return False

    def has(self, thread: threading.Thread) -> bool:
        """Return True if this is one of its threads."""
        return isinstance(thread, CrewThread) and thread.shared is self._shared

    def alive(self) -> tuple[int, bool]:
        """Return the number of live workers, without those whose jobs are overdue; and True if the master is alive."""
        return sum(worker.is_alive() for worker in self._workers), bool(self._master_thread and self._master_thread.is_alive())

    @property
    def throttled(self) -> str:
        """Name the memory that is scarce; empty if none is."""
        return self._throttle.active

    # -- the supervisor's thread

    def _supervise(self) -> None:
        while not self._over:
            try:
                next_at = self._tick(self._shared.clock.now())
            except BaseException as error:
                next_at = self._shared.clock.now() + self._backoff.next()
                self._tell(
                    "thread_died", logging.CRITICAL, f"FATAL: the supervisor could not go on, and tries again: {said(error)}"
                )
            self._shared.await_news(next_at)

    def _tick(self, now: float) -> float:
        """Do the due steps. Return when the next is due, if no news comes first."""
        self._sweep(now)
        times = [now + _SWEEP, self._name_overdue(now)]
        if self._shared.stopping:
            self._end_if_alone()
        else:
            times += [self._look_at_memory(now), self._keep_master(now), self._keep_workers(now)]
        return min(times)

    def _sweep(self, now: float) -> None:
        """Find threads that have ended. A worker leaves a vacancy; a job whose outcome the plan lacks gets a stand-in."""
        shared = self._shared
        for thread in shared.left():
            if thread is not self._supervisor:
                thread.join(_GOODBYE)
        with shared.lock:
            for worker in [worker for worker in self._workers if not worker.is_alive()]:
                self._workers.remove(worker)
                rest = shared.settings.worker_cooldown_seconds if worker.worked else 0
                self._vacant.append((worker.number, now + rest))
            self._others = [thread for thread in self._others if thread.is_alive()]
            # The lock is held: a thread settles its run before it ends.
            orphans = [run for run in self._mine() if not run.thread.is_alive()]
        for run in orphans:
            self._stand_in(run)

    def _mine(self) -> list[ActiveRun]:
        """Return the active jobs of this crew. The queue may also contain those of an earlier crew, left by a stop."""
        return [run for run in self._shared.queue.active() if self.has(run.thread)]

    def _stand_in(self, run: ActiveRun) -> None:
        """Start a thread that reports a job to the plan, as the job's own thread has ended."""
        shared, who = self._shared, run.thread.name
        shared.queue.decide(run, Outcome.failed(f"{who}, the thread that ran it, died"))
        thread = CrewThread(shared, who, lambda: settle(shared, run, who))
        thread.start()
        with shared.lock:
            run.thread = thread
            self._others.append(thread)

    def _name_overdue(self, now: float) -> float:
        """Give up jobs whose time and grace are over, and replace their workers. Return when the next job is overdue."""
        grace, named, next_at = self._shared.settings.job_timeout_grace_seconds, list[ActiveRun](), inf
        with self._shared.lock:
            for run in self._mine():
                if run.outcome is not None:
                    continue
                if run.deadline + grace > now:
                    next_at = min(next_at, run.deadline + grace)
                    continue
                run.overdue, run.outcome = True, Outcome.failed("its timeout was over, and it had not ended")
                named.append(run)
                if isinstance(run.thread, Worker):
                    self._replace(run.thread, now)
        for run in named:
            text = f"FATAL: {run.thread.name} does not end job {run.job.label}, whose timeout is over. The job stays active "
            text += "until its thread ends"
            self._tell("overdue", logging.CRITICAL, text, job=run.job, worker=run.thread.name)
        return next_at

    def _replace(self, worker: Worker, now: float) -> None:
        worker.retired = True
        self._workers.remove(worker)
        self._others.append(worker)
        self._last_number += 1
        self._vacant.append((self._last_number, now))

    def _look_at_memory(self, now: float) -> float:
        throttle = self._throttle
        if now >= throttle.next_at and throttle.check(now):
            with self._shared.lock:
                if self._shared.stopping:  # the queue may belong to the next crew already
                    return inf
                self._shared.queue.pause(bool(throttle.scarce))
                self._shared.changed()
            if throttle.scarce:
                figures = ", ".join(
                    f"{'Swap' if kind == 'swap' else kind} at {used:.1f}%" for kind, used in throttle.scarce.items()
                )
                self._tell("throttled", logging.WARNING, f"🚨 MEMORY THROTTLE ACTIVE: {figures}")
            else:
                self._tell("released", logging.WARNING, "✅ MEMORY THROTTLE RELEASED")
        return throttle.next_at

    def _keep_master(self, now: float) -> float:
        """Start the master's thread. After a death wait first; the pause grows with each death."""
        thread = self._master_thread
        if thread is not None and thread.is_alive():
            return inf
        if thread is not None:
            self._master_thread, self._master_at = None, now + self.master.failed()
        if now < self._master_at:
            return self._master_at
        self._master_thread = CrewThread(self._shared, "Master", self.master.work)
        self._master_thread.start()
        return inf

    def _keep_workers(self, now: float) -> float:
        """Start missing workers; first starts come one by one. With overdue jobs there are at most twice as many threads."""
        while self._vacant and self._has_room():
            self._start_worker(*self._vacant[0])
            self._vacant.pop(0)
        while self._first_starts < self.total and self._has_room():
            if now < self._workers_at:
                return self._workers_at
            self._start_worker(self._first_starts + 1, now)
            self._first_starts += 1
            self._workers_at = now + self._shared.settings.worker_stagger_seconds
        self._backoff.reset()
        return inf

    def _has_room(self) -> bool:
        return len(self._workers) + len(self._others) < 2 * self.total

    def _start_worker(self, number: int, ready_at: float) -> None:
        worker = Worker(self._shared, number, ready_at)
        with self._shared.lock:
            self._workers.append(worker)  # before it can pull a job, so that stats() never shows an active job without a worker
        try:
            worker.start()
        except BaseException:
            with self._shared.lock:
                self._workers.remove(worker)
            raise

    def _end_if_alone(self) -> None:
        threads = [*self._workers, *self._others, *([self._master_thread] if self._master_thread else [])]
        if not any(thread.is_alive() for thread in threads) and not self._mine():
            self._over = True
            self._shared.changed()

    def _tell(self, kind: str, level: int, text: str, **about: Any) -> None:
        self._shared.events.tell(kind, level, text, **about)
