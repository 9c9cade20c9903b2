"""A horse as the fork server sees it: a process, and when it is signaled."""

from __future__ import annotations

import os
import signal
from math import inf

from fusion.kernel.failpoints import failpoint
from fusion.kernel.stopping import SIGNAL as STOP

#: Seconds until the stop signal is first repeated, as the process may just have been forked; and seconds between later repetitions.
FIRST_AGAIN, AGAIN = 0.1, 0.25

# The originals, from before any task module was loaded: gevent and similar libraries replace them.
_kill, _killpg = os.kill, os.killpg


class HorseProcess:
    """A horse's process. `serial`: its number for the worker. `next_at`: monotonic time of the next `tick`. `why`: why it was killed here,
    or `-`."""

    __slots__ = ("_deadline", "_stop_at", "_stopping", "next_at", "pid", "serial", "why")

    def __init__(self, serial: int, pid: int) -> None:
        self.serial, self.pid = serial, pid
        self.why = "-"
        self.next_at = self._deadline = self._stop_at = inf
        self._stopping = False

    def kill_at(self, deadline: float) -> None:
        """Set the monotonic time at which it is killed."""
        self.next_at = self._deadline = deadline
        self._stop_at, self._stopping = inf, False

    def stop(self, deadline: float, now: float) -> None:
        """Ask its task to stop, repeatedly. It is killed at the deadline at the latest."""
        self._deadline, self._stopping = min(self._deadline, deadline), True
        self._ask(now + FIRST_AGAIN)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._deadline <= now:
            self.why = "stopped" if self._stopping else "timeout"
            if self._stopping:
                failpoint("stop.kill")
            self.next_at = self._deadline = self._stop_at = inf
            self.signal(signal.SIGKILL)
        elif self._stop_at <= now:
            self._ask(now + AGAIN)

    def _ask(self, again: float) -> None:
        self._stop_at = again
        self.next_at = min(self._deadline, again)
        try:
            _kill(self.pid, STOP)  # only the process: the task must handle its own children
        except OSError:
            pass

    def signal(self, signum: int) -> None:
        """Signal its whole process group."""
        for send in (_killpg, _kill):  # signal both: the task may have moved the horse to another group
            try:
                send(self.pid, signum)
            except OSError:
                pass
            if signum != signal.SIGKILL:
                return
