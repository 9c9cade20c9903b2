"""A supervised process's line to its supervisor: a socket it inherited. End of file there means: finish what you run, and end."""

from __future__ import annotations

import os
import socket
import time

from fusion.runtime.loop import Loop

#: Names the inherited descriptor and the seconds a warm end may take; out of the environment at once, so that no job sees it.
VARIABLE = "FUSION_SUPERVISOR"
#: Seconds between two signs of life.
_BEAT_INTERVAL = 1.0
#: A supervisor that lives insists by itself; only when it is gone must a process do so, a little later.
_GRACE = 2.0


class SupervisorLine:
    """Says lines of a word and its value: `NAME host.1 0f3a`, `READY`, `BEAT busy`, `DONE`. Does nothing if nobody supervises this process.

    - a supervisor that does not read is not waited for;
    - its end of file asks for a warm end, whether it wants that or died: a child must not outlive it by more than its jobs;
    - `impatient` says when the time for that is over.
    """

    def __init__(self, channel: socket.socket | None, patience: float) -> None:
        self._channel, self._patience = channel, patience
        self._beat_at = 0.0
        self._ready = False
        self._released_at: float | None = None
        if channel is not None:
            channel.setblocking(False)
            os.set_inheritable(channel.fileno(), False)

    @classmethod
    def inherited(cls) -> SupervisorLine:
        """The one this process was started with."""
        fd, _, patience = os.environ.pop(VARIABLE, "").partition(":")
        try:
            return cls(socket.socket(fileno=int(fd)), float(patience))
        except (ValueError, OSError):
            return cls(None, 0.0)

    def watch(self, loop: Loop) -> None:
        """Have `loop` hear the end of file."""
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
            pass  # reset: as gone as at end of file
        loop.unwatch(self._channel.fileno())
        self._released_at = time.monotonic()

    @property
    def supervised(self) -> bool:
        return self._channel is not None

    @property
    def released(self) -> bool:
        """Whether the supervisor wants a warm end, or is gone."""
        return self._released_at is not None

    def impatient(self, now: float) -> bool:
        """Whether a warm end takes longer than it may, with nobody left to say so."""
        return self._released_at is not None and now > self._released_at + self._patience + _GRACE

    def say(self, word: str, value: str = "") -> None:
        if self._channel is None:
            return
        try:
            self._channel.send(f"{word} {value}".rstrip().encode() + b"\n")
        except OSError:
            pass  # full, or gone: the end of file says which

    def beat(self, now: float, state: str, *, ready: bool) -> None:
        """A sign of life, not oftener than needed; `ready` is told as soon as it is so."""
        if ready and not self._ready:
            self._ready = True
            self.say("READY")
        if now >= self._beat_at:
            self._beat_at = now + _BEAT_INTERVAL
            self.say("BEAT", state)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
