"""What a supervised process tells its supervisor, over a socket it inherited. End of file there means that the supervisor is gone."""

from __future__ import annotations

import os
import socket

#: Names the inherited descriptor; taken out of the environment at once, so that no job sees it.
VARIABLE = "FUSION_SUPERVISOR_FD"


class Reporter:
    """Lines of a word and its value: `NAME host.1`, `READY`, `BEAT busy`. A supervisor that does not read is not waited for."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        channel.setblocking(False)
        os.set_inheritable(channel.fileno(), False)

    @classmethod
    def inherited(cls) -> Reporter | None:
        """The one this process was started with; None if nobody supervises it."""
        fd = os.environ.pop(VARIABLE, "")
        if not fd.isdecimal():
            return None
        try:
            return cls(socket.socket(fileno=int(fd)))
        except OSError:
            return None

    def fileno(self) -> int:
        return self._channel.fileno()

    def say(self, word: str, value: str = "") -> None:
        try:
            self._channel.send(f"{word} {value}".rstrip().encode() + b"\n")
        except OSError:
            pass  # full, or gone: the end of file says which

    def is_gone(self) -> bool:
        """Whether the supervisor closed its end; call when the descriptor is readable."""
        try:
            return self._channel.recv(4096) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._channel.close()
