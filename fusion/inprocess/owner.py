"""Names the process that has claimed a table row, so that others can check whether it is alive."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from dataclasses import dataclass
from itertools import count
from pathlib import Path

_NAME = r"[A-Za-z0-9_.-]{1,100}"
_TEXT = re.compile(rf"({_NAME})/([0-9a-f]+)/(\d+)\.(\d+)\.(\d+)")
_numbers = count(1)


@dataclass(frozen=True)
class PlanOwner:
    """A plan in one process. Its text form is `name/place/pid.started.number`."""

    name: str
    #: Host, boot and pid namespace: within one place a pid identifies a process.
    place: str
    pid: int
    #: When the process started, in ticks since the boot, as its pid may be reused later; 0 where that is unknown.
    started: int
    #: Distinguishes the plans of one process.
    number: int

    def __str__(self) -> str:
        return f"{self.name}/{self.place}/{self.pid}.{self.started}.{self.number}"

    @classmethod
    def here(cls, name: str) -> PlanOwner:
        """Return a new owner in this process. ValueError if the name is invalid."""
        if not re.fullmatch(_NAME, name):
            raise ValueError(f"owner is {name!r}; use 1 to 100 of the characters A-Z a-z 0-9 _ . -")
        return cls(name, _place(), os.getpid(), _started(os.getpid()) or 0, next(_numbers))

    @classmethod
    def read(cls, text: str) -> PlanOwner | None:
        """Parse an owner; None if the text has another form."""
        match = _TEXT.fullmatch(text)
        return cls(match[1], match[2], int(match[3]), int(match[4]), int(match[5])) if match else None

    @property
    def is_dead(self) -> bool:
        """True if its process is of this place and has ended."""
        return _started(self.pid) != self.started


def host_name() -> str:
    """Return the name of this host, limited to what an owner can contain."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:100] or "localhost"


def _place() -> str:
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # no Linux: the host alone
        pass
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _started(pid: int) -> int | None:
    """Return when the process started; None if it has ended or is a zombie. 0 if it lives but its start is unknown."""
    if not os.path.exists("/proc/self/stat"):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except OSError:  # it belongs to another user
            pass
        return 0
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
