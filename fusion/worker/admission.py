"""Says whether a worker takes jobs, and which ones each free slot may take."""

from __future__ import annotations

import logging
from enum import Enum
from math import inf

from fusion.kernel.memory import MemoryThrottle
from fusion.runtime.free_slots import ANY, HIGH
from fusion.runtime.membership import Membership


class Blocked(Enum):
    """A reason why a worker takes no jobs. Health probes show the value."""

    #: It ends: a signal, its supervisor, a limit of its own.
    RECYCLING = "stopping"
    #: Its executor has nothing that could run a job.
    NO_EXECUTOR = "no fork server is ready"
    #: Memory is scarce, see `MemoryThrottle`.
    THROTTLED = "memory throttle"
    #: An operator asked for it (`quiet`, SIGTSTP), until `unquiet` or SIGCONT.
    QUIET = "quiet"
    #: The whole fleet is suspended, until `resume`.
    SUSPENDED = "suspended"


#: Reasons not to ask Redis for jobs. SUSPENDED is not one: only the reply to a turn shows that the fleet was resumed. Nor is NO_EXECUTOR:
#: then no slot is free.
_CLOSING = frozenset({Blocked.RECYCLING, Blocked.THROTTLED, Blocked.QUIET})


class Admission:
    """Keeps the reasons to take no jobs, and the last `reserve` free slots for HIGH and above.

    Only the number of running jobs counts, not which slot each of them has.
    """

    def __init__(self, slots: int, reserve: int, throttle: MemoryThrottle | None, log: logging.Logger) -> None:
        self._slots, self._reserve, self._throttle, self._log = slots, reserve, throttle, log
        #: Why no job is taken; empty if jobs are.
        self.blocked: set[Blocked] = set()
        if self.scarce:
            self.blocked.add(Blocked.THROTTLED)

    @property
    def scarce(self) -> str:
        """Name the memory that is scarce, like `RAM 92.1 %`; empty if none is."""
        return self._throttle.active if self._throttle else ""

    @property
    def open(self) -> bool:
        """True if this worker may ask Redis for jobs."""
        return not (self.blocked and self.blocked & _CLOSING)

    @property
    def next_at(self) -> float:
        """When memory is measured again."""
        return self._throttle.next_at if self._throttle else inf

    def floors(self, free: int, taken: int) -> list[int]:
        """Return the lowest priority that each of `free` slots takes, slots for any job first. `taken`: slots in use. Empty unless
        `open`."""
        if not self.open:
            return []
        for_any = max(0, min(free, self._slots - taken - self._reserve))
        return [ANY] * for_any + [HIGH] * (free - for_any)

    def block(self, reason: Blocked, blocked: bool = True) -> bool:
        """Set a reason, or take it back; True if that is a change."""
        if not (blocked or self.blocked) or blocked == (reason in self.blocked):
            return False
        (self.blocked.add if blocked else self.blocked.discard)(reason)
        return True

    def set_quiet(self, quiet: bool, entry: Membership) -> bool:
        """Take no more jobs, or take them again; True if that is a change."""
        if not self.block(Blocked.QUIET, quiet):
            return False
        entry.note("quiet", "1" if quiet else "")
        self._log.info("quiet: running jobs go on, none is taken until `unquiet`" if quiet else "no longer quiet")
        return True

    def tick(self, now: float, entry: Membership) -> bool:
        """Measure memory if that is due; True if jobs may be taken again."""
        if self._throttle is None or now < self._throttle.next_at:
            return False
        said = self._throttle.check(now)
        if said:
            self._log.warning("%s", said)
        entry.note("throttled", self.scarce)
        return self.block(Blocked.THROTTLED, bool(self.scarce)) and not self.scarce
