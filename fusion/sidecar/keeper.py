"""The thread of an application that keeps a worker running while its process has the host's lock."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from fusion.exceptions import ConfigurationError
from fusion.runtime.backoff import Backoff
from fusion.runtime.child_process import Child, cause_of, named
from fusion.runtime.loop import Loop
from fusion.sidecar.host_lock import HostLock, WorkerSeats

log = logging.getLogger("fusion.sidecar")

#: Seconds between two tries to get the lock, and once an heir was given it: a reloader's children come and go.
_POLL, _POLL_BEHIND_HEIR = 1.0, 10.0
#: Seconds from the end of another process's lock to the start of a worker: where all must end, another may be about to, too.
_SETTLE = 1.0
#: Seconds between two looks at a worker, and at one that has closed its line.
_CHECK, _SOON = 1.0, 0.05
#: A worker that was ready for this long is healthy: what ends it then is no crash loop.
_HEALTHY = 10.0
#: Seconds after the first bad end until the next start, and at most; and from one start to the next in any case.
_FIRST_PAUSE, _LONGEST_PAUSE, _BETWEEN_STARTS = 0.5, 30.0, 1.0
#: A worker that gets it ends warm.
_WARM = ("stop", "SIGTERM")
#: Seconds from QUIT to KILL.
_QUIT_LIMIT = 10.0


@dataclass(frozen=True)
class WorkerPlace:
    """The place that is to be filled: what a worker is started with. `queues`: for the log; `patience`: seconds that a warm end may take."""

    command: Sequence[str]
    environment: Mapping[str, str]
    queues: str
    patience: float
    hang_timeout: float


class Keeper:
    """Asks for the lock until this process has it, then keeps one worker running; gives the lock up as soon as the worker must end.

    A worker that ends has jobs to finish and may outlive several keepers: it has a seat of its own, and there are two (`WorkerSeats`).
    """

    def __init__(self, place: WorkerPlace, lock: HostLock, seats: WorkerSeats) -> None:
        self._place, self._lock, self._seats = place, lock, seats
        #: The process whose keeper this is. After a fork the child has none: its threads did not come along.
        self.pid = os.getpid()
        self._loop = Loop()
        self._child: Child | None = None
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._poll = _POLL
        self._start_at = 0.0
        self._is_deaf = False
        self._stands_by: object = None
        self._last_step, self._pause = time.monotonic(), 0.0
        #: When a warm end is over, once `stop` was called.
        self._stop_by: float | None = None
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fusion-embedded-worker", daemon=True)

    @property
    def patience(self) -> float:
        """Seconds that a warm end may take."""
        return self._place.patience

    @property
    def worker(self) -> int | None:
        """The pid of the worker that this process keeps."""
        child = self._child
        return child.pid if child else None

    def start(self) -> None:
        """Begin; the caller holds `guard`. From here on a fork leaves the child without this."""
        self._thread.start()
        _running.add(self)

    def stop(self, within: float) -> None:
        """Give the lock up and have the worker end warm, by QUIT after `within` seconds, by KILL 10 s later. `join` waits for it."""
        self._stop_by = time.monotonic() + within
        try:
            self._wake.send(b"!")
        except OSError:
            pass  # woken already, or ended

    def join(self) -> None:
        """Wait for the end that `stop` asked for."""
        self._ended.wait()  # a join that ^C interrupts takes the thread for ended, until Python 3.13
        self._thread.join()

    def _forget(self) -> None:
        """Close what a fork copied: the worker's line must end with the process that started it."""
        self._lock.forget()
        if self._child is not None:
            self._child.close()
        self._wake.close()
        self._woken.close()

    # -- in the thread

    def _run(self) -> None:
        self._loop.watch(self._woken.fileno(), self._drain)
        while self._stop_by is None or self._child is not None:
            try:
                self._step(time.monotonic())
            except Exception:
                log.exception("what keeps the embedded worker failed; it goes on")
                self._pause = _CHECK
            self._loop.run_once(self._pause)
        with guard:
            _running.discard(self)
            self._lock.release()
            self._wake.close()
            self._woken.close()
        self._ended.set()

    def _drain(self) -> None:
        self._woken.recv(64)

    def _step(self, now: float) -> None:
        stood, self._last_step = now - self._last_step - self._pause, now
        self._pause = _SOON if self._is_deaf else _CHECK
        if self._child is not None:
            if stood > _CHECK:
                self._child.heard += stood  # what stopped this process, or this thread, kept it from hearing
            self._look_after(self._child, now)
        if self._stop_by is not None:
            self._release(self._stop_by)
        elif heir := self._lock.heir():
            log.info("process %d, which this one started, gets the worker", heir)
            self._poll, self._start_at = _POLL_BEHIND_HEIR, now + _POLL_BEHIND_HEIR
            self._release(inf)
        elif self._child is None:
            if now >= self._start_at:
                self._fill(now)
            self._pause = min(_CHECK, max(0.0, self._start_at - now))

    def _release(self, stop_by: float) -> None:
        """Have the worker take no more jobs, and let another process start one."""
        if (child := self._child) is not None:
            if not (child.ready or child.told):  # it has no job, and reads its line only once it has loaded everything
                child.signal(signal.SIGTERM, stop_by)
            child.release(stop_by)
            if child.told in _WARM:
                child.stop_by = min(child.stop_by, stop_by)
            self._pause = min(self._pause, max(0.0, child.stop_by - time.monotonic()))
        self._unlock()

    def _fill(self, now: float) -> None:
        try:
            if not self._lock.held:
                if not self._acquire():
                    self._stand_by(
                        now, self._lock.holder, logging.INFO, "process %s of this host keeps the worker; this one stands by"
                    )
                    return
                if self._stands_by is not None:
                    self._stands_by, self._start_at = None, now + _SETTLE
                    return
            child = self._start_child()
            if child is None:
                self._stand_by(
                    now, "seats", logging.INFO, "two workers of this host have not ended yet; the next one waits for a place"
                )
                return
        except (OSError, ConfigurationError) as error:
            self._unlock()  # another process may be able to
            self._stand_by(now, str(error), logging.ERROR, "a worker can't be started: %s")
            return
        self._stands_by, self._is_deaf, self._poll = None, False, _POLL
        self._loop.watch(child.fileno(), self._hear)
        log.info("%s is started for %s", child, self._place.queues)

    def _acquire(self) -> bool:
        with guard:
            return self._lock.acquire()

    def _unlock(self) -> None:
        with guard:
            self._lock.release()

    def _start_child(self) -> Child | None:
        """Start a worker; None if there is no place for one."""
        place = self._place
        with guard:
            if (seat := self._seats.take()) is None:
                return None
            try:
                self._child = child = Child(
                    "worker", place.command, place.patience, own_group=True, environment=place.environment, inherits=(seat,)
                )
            finally:
                os.close(seat)  # the worker has it now
        return child

    def _stand_by(self, now: float, why: object, level: int, text: str) -> None:
        """Try again later. A reason is logged once."""
        self._start_at = now + self._poll
        if why != self._stands_by:
            self._stands_by = why
            log.log(level, text, why)

    def _look_after(self, child: Child, now: float) -> None:
        self._hear()
        code = child.collect()
        if code is not None:
            self._on_exit(child, code, now)
        elif now > child.stop_by:
            number = signal.SIGQUIT if child.told in _WARM else signal.SIGKILL
            log.warning("%s has not ended in time: %s", child, number.name)
            child.signal(number, now + _QUIT_LIMIT)
        elif now - child.heard > self._place.hang_timeout and child.told != "SIGKILL":
            child.hung = True
            log.error("%s has given no sign of life for %.0f s and is killed", child, now - child.heard)
            child.signal(signal.SIGKILL, inf)

    def _hear(self) -> None:
        child = self._child
        if child is not None and not self._is_deaf and not child.listen():
            self._loop.unwatch(child.fileno())
            self._is_deaf = True  # it has closed its line: most likely it ends this moment

    def _on_exit(self, child: Child, code: int, now: float) -> None:
        self._loop.unwatch(child.fileno())
        with guard:
            self._child = None
            child.close()
        # Whoever else reaps all children of this process, as gunicorn's master does, keeps the exit code to himself: we get 0.
        clean = (code == 0 and (child.ready or bool(child.told))) or (code == -signal.SIGTERM and child.told == "SIGTERM")
        if clean or (child.ready_at is not None and now - child.ready_at > _HEALTHY):
            self._backoff.reset()
        pause = 0.0 if clean else self._backoff.next()
        self._start_at = max(self._start_at, now + pause, child.started + _BETWEEN_STARTS)
        again = "" if child.told else f"; another starts in {self._start_at - now:.1f} s"
        if clean:
            log.info("%s ended%s", child, again)
        else:
            log.log(logging.WARNING if child.told else logging.ERROR, "%s%s", named(cause_of(child, code)), again)


#: All of this process that have begun and not ended.
_running: set[Keeper] = set()
#: Held by each fork, and from the birth of a descriptor to the moment from which `_forget` knows it.
guard = threading.RLock()


def _stop_all() -> None:
    """The application ends by itself: its workers do first, so that a container does not go with jobs in it."""
    try:
        _end_all()
    except (KeyboardInterrupt, SystemExit):  # a second ^C, or the handler of a second TERM: somebody will not wait for the jobs
        _end_all(within=0.0)


def _end_all(within: float | None = None) -> None:
    """Stop each keeper, and wait for its end. `within`: as for `Keeper.stop`; None: as long as a warm end may take."""
    keepers = list(_running)
    for keeper in keepers:
        keeper.stop(keeper.patience if within is None else within)
    for keeper in keepers:
        keeper.join()


def _forget_all() -> None:
    for keeper in _running:
        keeper._forget()
    _running.clear()
    guard.release()


atexit.register(_stop_all)
os.register_at_fork(before=guard.acquire, after_in_parent=guard.release, after_in_child=_forget_all)
