"""Child processes as their parent sees them: it starts them, reads their reports and ends them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusion.exceptions import FusionError, ProcessExitError, ProcessPrunedError
from fusion.kernel.linux import signal_name
from fusion.kernel.sentences import PROCESS, PROCESS_ALONE
from fusion.runtime.supervised import VARIABLE

#: Variables of systemd, for the supervisor alone: a job must not report to systemd in its name.
_PRIVATE = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@dataclass(frozen=True)
class Kind:
    """`count` processes of one command line that a supervisor keeps running. They must report, see `fusion.runtime.supervised`."""

    name: str
    arguments: tuple[str, ...]
    count: int = 1


class Child:
    """One process that reports to this one.

    - `name` and `incarnation`: its entry in the list of workers, once it has reported them; empty for a kind without entries;
    - `state`: the last state that it reported. `ready_at`, `heard`: monotonic times when it became ready and last reported;
    - `told`: `stop` or the name of the last signal sent to it; empty if none was. `stop_by`: when a stronger signal follows.
    """

    def __init__(
        self,
        label: str,
        command: Sequence[str],
        patience: float,
        *,
        own_group: bool = False,
        environment: Mapping[str, str] | None = None,
        inherits: Sequence[int] = (),
    ) -> None:
        """Start `command`. OSError if it can't be started.

        `label`: its name in the log. `patience`: seconds for its warm end once its parent is gone. `own_group`: put it into its own process
        group, so that signals to this group do not reach it. `environment`: default: that of this process. `inherits`: descriptors to
        inherit.
        """
        self.label = label
        self.name = self.incarnation = ""
        self.state = "starting"
        #: The address of its probe port; empty without one.
        self.probe = ""
        #: Its warnings, for the supervisor's probe; empty if it has none.
        self.warning = ""
        self.ready_at: float | None = None
        #: True once it has done its work: it is not replaced.
        self.done = False
        self.hung = False
        self.started = self.heard = time.monotonic()
        #: Monotonic time by which it must obey `told`.
        self.stop_by = float("inf")
        self.told = ""
        self._in = b""
        ours, theirs = socket.socketpair()
        with theirs:
            inherited = os.environ if environment is None else environment
            env = {name: value for name, value in inherited.items() if name not in _PRIVATE}
            try:
                self._process = subprocess.Popen(
                    command,
                    env={**env, VARIABLE: f"{theirs.fileno()}:{patience:g}"},
                    pass_fds=(theirs.fileno(), *inherits),
                    stdin=subprocess.DEVNULL,
                    # if this process was started without stdio, these numbers may belong to other files by now
                    stdout=None if sys.__stdout__ else subprocess.DEVNULL,
                    stderr=None if sys.__stderr__ else subprocess.DEVNULL,
                    process_group=0 if own_group else None,
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._channel = ours

    def __str__(self) -> str:
        about = PROCESS.format(n=self.pid, worker=self.name) if self.name else PROCESS_ALONE.format(n=self.pid)
        return f"{self.label} {about}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ready(self) -> bool:
        return self.ready_at is not None

    def fileno(self) -> int:
        """Return the descriptor on which it reports."""
        return self._channel.fileno()

    def listen(self) -> bool:
        """Read its reports; False once it has closed the connection."""
        try:
            data = self._channel.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        *lines, self._in = (self._in + data).split(b"\n")
        for line in lines:
            self.heard = time.monotonic()
            self._take(*line.decode("utf-8", "replace").partition(" ")[::2])
        return bool(data)

    def _take(self, word: str, value: str) -> None:
        if word == "NAME":
            self.name, _, self.incarnation = value.rpartition(" ")
        elif word == "READY" and self.ready_at is None:
            self.ready_at = self.heard
        elif word == "BEAT":
            self.state = value
        elif word == "PROBE":
            self.probe = value
        elif word == "WARN":
            self.warning = value
        elif word == "DONE":
            self.done = True

    def release(self, stop_by: float) -> None:
        """Ask for a warm end.

        This sends no TERM: Heroku or the terminal's ^C has already signaled the whole tree, and a second signal would kill its jobs.
        """
        if not self.told:
            self.told, self.stop_by = "stop", stop_by
            try:
                self._channel.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it is gone: `collect` reports it

    def set_quiet(self, quiet: bool) -> None:
        """Have it take no more jobs, or take jobs again. Before it reports its name it has no handler: TSTP would stop it for good."""
        if self.name:
            self._process.send_signal(signal.SIGTSTP if quiet else signal.SIGCONT)

    def signal(self, number: signal.Signals, stop_by: float) -> None:
        """Send a signal that ends it."""
        self.told, self.stop_by = number.name, stop_by
        self._process.send_signal(number)

    def collect(self) -> int | None:
        """Reap the process. Return its exit code, or minus a signal's number; None while it runs."""
        return self._process.poll()

    def close(self) -> None:
        """Close the line on which it reports."""
        self._channel.close()


def cause_of(child: Child, code: int) -> FusionError:
    """Return the error that a child's jobs get: why the child ended."""
    if child.hung:
        return ProcessPrunedError(f"{child} gave no sign of life and was killed")
    if code >= 0:
        return ProcessExitError(f"{child} exited with code {code}")
    hint = "; the OOM killer, or a person" if code == -signal.SIGKILL and child.told != "SIGKILL" else ""
    return ProcessExitError(f"{child} was killed by {signal_name(-code)}{hint}")


def named(error: FusionError) -> str:
    """An error's class and message, as logs and jobs have it."""
    return f"{type(error).__name__}: {error}"
