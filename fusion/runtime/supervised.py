"""A supervised process's line to its supervisor: a socket it inherited. End of file there means: finish what you run, and end."""

from __future__ import annotations

import os
import socket
import time
from math import inf

from fusion.runtime.loop import Loop

#: Names the inherited descriptor and the seconds a warm end may take; out of the environment at once, so that no job sees it.
VARIABLE = "FUSION_SUPERVISOR"
#: Seconds between two signs of life.
_BEAT_INTERVAL = 1.0
#: Seconds beyond `patience`: a live supervisor enforces the end itself; only if it is gone does the process, a little later.
_GRACE = 2.0


class SupervisorLine:
    """Sends lines of a word and its value: `NAME host.1 0f3a`, `READY`, `BEAT busy`, `WARN ...`, `DONE`. Without a `channel` it does nothing.

    - a supervisor that does not read is not waited for;
    - end of file means: end warm, whether the supervisor asked for it or died. So a child outlives it only until its jobs are done;
    - a warm end that takes longer than `patience` seconds makes it `impatient`.
    """

    def __init__(self, channel: socket.socket | None = None, patience: float = 0.0) -> None:
        self._channel, self._patience = channel, patience
        #: When the next sign of life is due.
        self.next_at = inf if channel is None else 0.0
        #: True if a supervisor has not received READY yet.
        self.wants_ready = channel is not None
        #: True if the supervisor wants a warm end, or is gone.
        self.released = False
        #: Monotonic time by which a warm end must be over; inf without a limit.
        self._end_by = inf
        if channel is not None:
            channel.setblocking(False)
            os.set_inheritable(channel.fileno(), False)

    @classmethod
    def inherited(cls) -> SupervisorLine:
        """Return the line that this process inherited; one that does nothing if it has no supervisor."""
        fd, _, patience = os.environ.pop(VARIABLE, "").partition(":")
        try:
            return cls(socket.socket(fileno=int(fd)), float(patience))
        except (ValueError, OSError):
            return cls()

    def watch(self, loop: Loop) -> None:
        """Have `loop` watch for the end of file."""
        if self._channel is not None:
            loop.watch(self._channel.fileno(), lambda: self._hear(loop))

    def _hear(self, loop: Loop) -> None:
        assert self._channel is not None
        try:
            if self._channel.recv(4096):
                return
        except BlockingIOError:
            return
        except OSError:
            pass  # a reset means the same as end of file
        loop.unwatch(self._channel.fileno())
        self._release()

    def _release(self) -> None:
        self.released = True
        self._end_by = time.monotonic() + self._patience + _GRACE

    def impatient(self, now: float) -> bool:
        """Return True if a warm end takes too long and the supervisor is gone."""
        return now > self._end_by

    def say(self, word: str, value: str = "") -> None:
        """Send one line, unless the supervisor does not read."""
        if self._channel is None:
            return
        try:
            self._channel.send(f"{word} {value}".rstrip().encode() + b"\n")
        except OSError:
            pass  # full, or gone: only an end of file shows that it is gone

    def beat(self, now: float, state: str, *, ready: bool) -> None:
        """Send a heartbeat if one is due, and READY once, as soon as this process is `ready`."""
        if ready and self.wants_ready:
            self.wants_ready = False
            self.say("READY")
        if now >= self.next_at:
            self.next_at = now + _BEAT_INTERVAL
            self.say("BEAT", state)

    def close(self) -> None:
        """Close the socket. The supervisor sees the end of file."""
        if self._channel is not None:
            self._channel.close()
