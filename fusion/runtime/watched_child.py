"""A side process of a worker."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from math import inf

from fusion.runtime.backoff import Backoff
from fusion.runtime.child_process import Child
from fusion.runtime.context import ProcessContext

#: Seconds between two checks whether a child has ended, and once it has closed its line.
_CHECK, _SOON = 1.0, 0.05
#: Seconds after the first bad end of a watched child until the next start, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


class WatchedChild:
    """One side process of a worker. It starts it from a command line, reads its reports, kills it if it hangs and ends it with the
    worker."""

    def __init__(
        self, process: ProcessContext, label: str, command: Sequence[str], patience: float, *, own_group: bool = False
    ) -> None:
        """`command`: if empty, the process is never started. For the others see `Child`."""
        self._process, self._label, self._patience, self._own_group = process, label, patience, own_group
        self.command = list(command)
        #: The process, None while there is none.
        self.child: Child | None = None
        #: Pauses between a bad end and the next start.
        self.backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        #: When `ended` should be called; inf while there is no process.
        self.next_at = inf
        self._is_deaf = False

    def start(self, now: float) -> Child | None:
        """Start the process. If it can't be started now, log that and return None."""
        try:
            child = Child(self._label, self.command, self._patience, own_group=self._own_group)
        except OSError as error:
            self._process.log.error("the %s can't be started: %s", self._label, error.strerror)
            return None
        self.child, self.next_at, self._is_deaf = child, now + _CHECK, False
        self._process.loop.watch(child.fileno(), self._hear)
        return child

    def ended(self, now: float) -> tuple[Child, int] | None:
        """Return the process and its exit status once it has ended. Kill one that is silent for `hang_timeout` seconds."""
        child = self.child
        if child is None:
            return None
        code = child.collect()
        if code is None:
            self.next_at = now + (_SOON if self._is_deaf else _CHECK)
            if now - child.heard > self._process.settings.hang_timeout and child.told != "SIGKILL":
                child.hung = True
                child.signal(signal.SIGKILL, now)
            return None
        self._hear()
        self._forget(child)
        return child, code

    def close(self, patience: float) -> None:
        """Wait at most `patience` seconds for the requested end, then kill."""
        child = self.child
        self.command = []
        if child is None:
            return
        until = time.monotonic() + patience
        while child.collect() is None and time.monotonic() < until:
            time.sleep(0.01)
        if child.collect() is None:
            child.signal(signal.SIGKILL, until)
        self._forget(child)

    def _hear(self) -> None:
        if self.child is not None and not self.child.listen():
            self._process.loop.unwatch(self.child.fileno())
            self.next_at, self._is_deaf = 0.0, True  # it has closed its line: most likely it ends this moment

    def _forget(self, child: Child) -> None:
        self._process.loop.unwatch(child.fileno())
        child.close()
        self.child, self.next_at = None, inf
