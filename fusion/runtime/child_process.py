"""Child processes of this command line, from their parent's side: started, heard, ended."""

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

#: systemd's, for the supervisor alone: a job must not speak for it.
_PRIVATE = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@dataclass(frozen=True)
class Kind:
    """`count` processes of one command line that a supervisor keeps running. They must report, see `fusion.runtime.supervised`."""

    name: str
    arguments: tuple[str, ...]
    count: int = 1


class Child:
    """One process that reports to this one.

    - `name` and `incarnation`: its entry in the list of workers, once it has said so; empty for a kind that is in no such list;
    - `state`: its last word of itself; `ready_at`, `heard`: monotonic times;
    - `told`: `stop` or the signal it was sent last, empty if it goes on; `stop_by`: when that is insisted on.
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
        """Start `command`. OSError if that can't be done.

        `label`: its name in the log. `patience`: seconds it may take for a warm end once its parent is gone. `own_group`: a signal to the
        process group of this process does not reach it. `environment`: this process's own, if none is given. `inherits`: descriptors.
        """
        self.label = label
        self.name = self.incarnation = ""
        self.state = "starting"
        self.ready_at: float | None = None
        #: It ended its work by itself and wants no successor.
        self.done = False
        self.hung = False
        self.started = self.heard = time.monotonic()
        #: When what it was told last is insisted on.
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
                    # in a process that was started without them these numbers are something else's by now
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
        """The descriptor of the line on which it reports."""
        return self._channel.fileno()

    def listen(self) -> bool:
        """Read what it reported; False once it has closed its line."""
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
        elif word == "DONE":
            self.done = True

    def release(self, stop_by: float) -> None:
        """Ask for a warm end.

        Not by TERM: whoever signals a whole tree (Heroku, the terminal's ^C) has sent one already, and two would cut off its jobs.
        """
        if not self.told:
            self.told, self.stop_by = "stop", stop_by
            try:
                self._channel.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it is gone: `collect` will say so

    def set_quiet(self, quiet: bool) -> None:
        """Take no more jobs, or take some again. One that has not yet said its name has no handler: a TSTP would stop it for good."""
        if self.name:
            self._process.send_signal(signal.SIGTSTP if quiet else signal.SIGCONT)

    def signal(self, number: signal.Signals, stop_by: float) -> None:
        """Send it a signal that ends it."""
        self.told, self.stop_by = number.name, stop_by
        self._process.send_signal(number)

    def collect(self) -> int | None:
        """Reap it: its exit status, an exit code or minus a signal's number; None while it runs."""
        return self._process.poll()

    def close(self) -> None:
        """Close the line on which it reports."""
        self._channel.close()


def cause_of(child: Child, code: int) -> FusionError:
    """The reason of a child's end, as the error that its jobs get."""
    if child.hung:
        return ProcessPrunedError(f"{child} gave no sign of life and was killed")
    if code >= 0:
        return ProcessExitError(f"{child} exited with code {code}")
    hint = "; the OOM killer, or a person" if code == -signal.SIGKILL and child.told != "SIGKILL" else ""
    return ProcessExitError(f"{child} was killed by {signal_name(-code)}{hint}")


def named(error: FusionError) -> str:
    """An error's class and message, as logs and jobs have it."""
    return f"{type(error).__name__}: {error}"
