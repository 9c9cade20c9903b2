"""One process of a supervisor: started, heard, ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from fusion.process.forkserver_client import signal_name
from fusion.process.report import VARIABLE


class Child:
    """`name`: what it is registered as in Redis, once it has said so. Times are monotonic."""

    def __init__(self, label: str, arguments: Sequence[str]) -> None:
        self.label = label
        self.name = ""
        self.ready = False
        self.state = "starting"
        self.started = self.heard = time.monotonic()
        self.stop_by = float("inf")
        self.told: int | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "fusion", *arguments],
                    env={**os.environ, VARIABLE: str(theirs.fileno())},
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._channel = ours
        self._in = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        return self._channel.fileno()

    def listen(self) -> bool:
        """Take in what it says; False at the end of what it will ever say."""
        try:
            data = self._channel.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        *lines, self._in = (self._in + data).split(b"\n")
        for line in lines:
            word, _, value = line.decode("utf-8", "replace").partition(" ")
            self.heard = time.monotonic()
            if word == "NAME":
                self.name = value
            elif word == "READY":
                self.ready = True
            elif word == "BEAT":
                self.state = value
        return bool(data)

    def signal(self, number: int) -> None:
        self.told = number
        self._process.send_signal(number)

    def collect(self) -> int | None:
        """Its exit status if it has ended: an exit code, or minus a signal's number."""
        return self._process.poll()

    def close(self) -> None:
        self._channel.close()


def describe_exit(code: int) -> str:
    """How a child ended, in words."""
    if code < 0:
        hint = "; the OOM killer, or a person" if code == -signal.SIGKILL else ""
        return f"killed by {signal_name(-code)}{hint}"
    return f"exited with code {code}"
