"""`worker --reload`: restarts a worker when its code changes. For development: a worker that dies is replaced only after the next edit."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Sequence

from fusion.runtime.child_process import Child, cause_of, named
from fusion.runtime.loop import Loop
from fusion.runtime.signals import Signals
from fusion.supervisor.sources import Snapshot, WatchedFiles

log = logging.getLogger("fusion.reload")

#: Seconds between two checks of the files; and seconds without another change before one counts, as a checkout writes many files.
_LOOK, _SETTLE = 0.3, 0.1
#: Seconds from QUIT to KILL.
_QUIT_LIMIT = 10.0


class Reloader:
    """Runs `command`, a worker, until a signal stops it or the worker has done its work.

    - a file changes: the worker takes no more jobs, finishes those that run, and another takes its place;
    - the worker fails: the next change starts another;
    - INT or TERM: a warm end; twice, or QUIT: at once.
    """

    def __init__(self, command: Sequence[str], sources: WatchedFiles, patience: float) -> None:
        self._command, self._sources, self._patience = command, sources, patience
        self._loop, self._signals = Loop(), Signals()
        self._child: Child | None = None
        self._seen: Snapshot = {}
        self._stopping = False
        self._code: int | None = None

    def run(self) -> int:
        """Run until the end; return the worker's exit code."""
        self._signals.install()
        self._loop.watch(self._signals.fileno(), self._signals.drain)
        before = signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the loop
        try:
            self._start()
            while self._code is None:
                self._loop.run_once(_LOOK)
                self._step(time.monotonic())
        finally:
            signal.signal(signal.SIGCHLD, before)
            self._signals.restore()
        return self._code

    def _start(self) -> None:
        # The worker may miss changes from here on.
        self._seen = self._sources.look()
        self._child = child = Child("worker", self._command, self._patience, own_group=True)
        self._loop.watch(child.fileno(), lambda: self._hear(child))

    def _hear(self, child: Child) -> None:
        if not child.listen():
            self._loop.unwatch(child.fileno())

    def _step(self, now: float) -> None:
        self._obey(now)
        child = self._child
        if child is not None and (code := child.collect()) is not None:
            self._ended(child, code)
        elif child is not None and now > child.stop_by:
            child.signal(signal.SIGKILL, now + _QUIT_LIMIT)
        if self._stopping:
            if self._child is None:
                self._code = self._code or 0
        elif self._code is None and (self._child is None or not self._child.told) and (changed := self._changed()):
            log.info(
                "%s changed: %s", changed, "the worker starts again when its jobs are done" if self._child else "a worker starts"
            )
            if self._child is None:
                self._start()
            else:
                self._child.release(float("inf"))  # a job is never killed for an edit

    def _changed(self) -> str:
        """Return the name of a file that changed since the worker started; empty if none did."""
        found = self._sources.look()
        if not (names := self._sources.differences(self._seen, found)):
            return ""
        while True:
            time.sleep(_SETTLE)
            if (again := self._sources.look()) == found:
                break
            found = again
        self._seen = found
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

    def _ended(self, child: Child, code: int) -> None:
        self._loop.unwatch(child.fileno())
        child.close()
        self._child = None
        if self._stopping:
            self._code = abs(code)
        elif child.told:
            self._start()
        elif code == 0:
            self._code = 0  # a burst is over, or a limit was reached
        else:
            log.error("%s; the next change starts another", named(cause_of(child, code)))

    def _obey(self, now: float) -> None:
        if self._signals.reload:
            self._signals.reload = False
            if self._child is not None and not self._stopping:
                self._child.release(float("inf"))
        if self._signals.set_quiet is not None:
            if self._child is not None:
                self._child.set_quiet(self._signals.set_quiet)
            self._signals.set_quiet = None
        if (self._signals.quit or self._signals.stops > 1) and self._child is not None:
            if self._child.told != signal.SIGQUIT.name and self._child.told != signal.SIGKILL.name:
                self._child.signal(signal.SIGQUIT, now + _QUIT_LIMIT)
            self._stopping = True
        elif self._signals.stops and not self._stopping:
            self._stopping = True
            if self._child is not None:
                self._child.release(float("inf"))
