"""The worker's side of the fork server, for a selectors loop: no threads, and nothing here waits.

Register `server.fileno()` and each `horse.fileno()` for reading, and for writing while `unsent` holds something.
"""

from __future__ import annotations

import _socket
import json
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from typing import ClassVar

from fusion.execution.callbacks import CALLBACKS
from fusion.forkserver.environment import changed_by
from fusion.forkserver.horse_link import Horse
from fusion.forkserver.messages import (
    Alike,
    ForkFailed,
    ForkServerConfig,
    HorseExited,
    ImportFailed,
    Message,
    Ready,
    ServerClosed,
    Tainted,
)
from fusion.forkserver.orphans import end_orphans
from fusion.kernel import defaults
from fusion.kernel.failpoints import failpoint
from fusion.kernel.linux import processes
from fusion.kernel.standard import command

#: Seconds in which the fork server must kill everything and end, before it is killed itself.
DESTROY_LIMIT = 2.5
_OVERHEAD = 64 * 1024


class ForkServerClient:
    """One fork server process. After ServerClosed only `destroy` may be called; make a new object."""

    #: Pids of this process's fork servers that are not destroyed yet.
    _living: ClassVar[set[int]] = set()

    def __init__(self, config: ForkServerConfig) -> None:
        self.config = config
        self.importing: str | None = None
        #: True if its jobs have hooks, whose time limit is added to theirs.
        self.hooked = False
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._in = b""
        #: Messages that wait for the socket, see `flush`.
        self.unsent: deque[tuple[bytes, _socket.socket | None]] = deque()
        self._serial = 0
        self._asked: dict[int, Horse] = {}
        self._limit = 2 * config.max_result + defaults.MAX_EXC_INFO + _OVERHEAD

    def start(self) -> None:
        """Start the process; Ready comes when its imports are done. Raises OSError if it can't be started."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*command("fusion.forkserver.server"), str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    env=changed_by(self.config.environment, os.environ),
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self._living.add(self._process.pid)
        ours.setblocking(False)
        self._control = ours
        self._say(f"CONFIG {json.dumps({**asdict(self.config), 'late': self.config.by_horses})}")

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def fileno(self) -> int:
        """-1 when it is closed."""
        return self._control.fileno() if self._control is not None else -1

    def poll(self) -> int | None:
        """The exit code of the process; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def fork(self) -> Horse:
        """Request a horse. It can get its job at once; if there will be no process, ForkFailed comes."""
        horse = self.fork_with_next()
        self.flush()
        return horse

    def fork_with_next(self) -> Horse:
        """Request a horse together with the next message, so that the server wakes only once for both."""
        self._serial += 1
        ours, theirs = _socket.socketpair()  # `socket.socketpair` would inspect each end again
        ours.setblocking(False)
        horse = Horse(self, self._serial, ours, self._limit)
        self._queue(f"FORK {horse.serial}", theirs)
        return horse

    def run(self, horse: Horse, deadline: float, fields: Mapping[bytes, bytes]) -> None:
        """Send the job to the horse. `deadline`: monotonic seconds at which its whole group is SIGKILLed; `inf` for none."""
        if self.hooked or not CALLBACKS.isdisjoint(fields):
            horse.expect_callbacks(fields)
        # Send the deadline first: if the worker is stopped in between, the job still has its limit.
        if deadline != inf:
            self.set_deadline(horse, deadline)
        else:
            self.flush()
        horse.send(fields)
        failpoint("handout.frame")

    def set_deadline(self, horse: Horse, deadline: float) -> None:
        """Move the monotonic time at which the fork server kills the horse's group."""
        horse.deadline = deadline
        self._say(f"RUN {horse.serial} {deadline!r}")

    def kill(self, horse: Horse, signum: int) -> None:
        """Signal the horse's whole process group."""
        self._say(f"KILL {horse.serial} {int(signum)}")

    def stop(self, horse: Horse, deadline: float) -> None:
        """Ask the horse's task to stop. Its group is killed at the deadline at the latest."""
        horse.deadline = min(horse.deadline, deadline)
        self._say(f"STOP {horse.serial} {horse.deadline!r}")

    def ask_pid(self, horse: Horse) -> None:
        """Request the horse's process id; the answer sets `horse.pid`. No answer comes for a horse that has ended."""
        self._asked[horse.serial] = horse
        self._say(f"WHO {horse.serial}")

    def receive(self) -> list[Message]:
        """Return the messages that have arrived. ServerClosed comes last, once."""
        messages: list[Message] = []
        if self._control is None:
            return messages
        closed = False
        try:
            data = self._control.recv(65536)
            closed = not data
        except BlockingIOError:
            return messages
        except OSError:
            data, closed = b"", True
        *lines, self._in = (self._in + data).split(b"\n")
        for line in lines:
            message = self._parse(line)
            if message is not None:
                messages.append(message)
        if closed:
            self._close()
            messages.append(ServerClosed(self.importing))
        return messages

    def flush(self) -> None:
        """Send waiting data, as much as the socket takes."""
        while self.unsent and self._control is not None:
            data, end = self.unsent[0]
            lines = 1
            while lines < len(self.unsent) and self.unsent[lines][1] is None:
                data += self.unsent[lines][0]
                lines += 1
            try:
                if end is None:
                    sent = self._control.send(data)
                else:
                    sent = socket.send_fds(self._control, [data], [end.fileno()])
                    end.close()
            except BlockingIOError:
                return
            except OSError:  # the server is gone; `receive` reports it
                self._drop_unsent()
                return
            for _ in range(lines):
                self.unsent.popleft()
            if sent < len(data):
                self.unsent.appendleft((data[sent:], None))

    def destroy(self) -> None:
        """End the server and all its descendants, by SIGKILL if it does not end by itself. Wait up to 2.5 s, and 2 s for processes that it
        left."""
        self._close()
        process = self._process
        if process is None:
            return
        try:
            process.wait(DESTROY_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            # Until it is reaped, its pid identifies its session, which contains all horses.
            for pid, _, session in processes():
                if session == process.pid and pid != process.pid:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except OSError:
                        continue
            process.wait()
        self._living.discard(process.pid)
        if process.returncode != 0:  # else it has ended them itself
            end_orphans(self._living)

    def _say(self, line: str, end: _socket.socket | None = None) -> None:
        self._queue(line, end)
        self.flush()

    def _queue(self, line: str, end: _socket.socket | None) -> None:
        if self._control is not None:
            self.unsent.append((line.encode() + b"\n", end))
        elif end is not None:
            end.close()

    def _parse(self, line: bytes) -> Message | None:
        verb, _, rest = line.decode("utf-8", "replace").partition(" ")
        if verb == "EXIT":
            serial, status, maxrss, why = rest.split()
            self._asked.pop(int(serial), None)
            return HorseExited(int(serial), int(status), int(maxrss), why)
        if verb == "PID":
            serial, pid = rest.split()
            asked = self._asked.pop(int(serial), None)
            if asked is not None:
                asked.pid = int(pid)
            return None
        if verb == "HOOKED":
            self.hooked = True
            return None
        if verb == "READY":
            self.importing = None
            return Ready()
        if verb == "IMPORTING":
            self.importing = rest
            return None
        if verb == "FORK_FAILED":
            serial, errno = rest.split()
            return ForkFailed(int(serial), int(errno))
        if verb == "IMPORT_FAILED":
            found = json.loads(rest)
            return ImportFailed(found["module"], found["error"], found["traceback"])
        if verb == "ALIKE":
            return Alike(tuple(json.loads(rest)))
        if verb == "TAINTED":
            found = json.loads(rest)
            return Tainted(found["module"], found["reason"])
        return None

    def _close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        self._drop_unsent()

    def _drop_unsent(self) -> None:
        for _, end in self.unsent:
            if end is not None:
                end.close()
        self.unsent.clear()
