"""Whether the worker takes jobs, and which ones each free slot may take."""

from __future__ import annotations

import logging

from fusion.kernel.memory import MemoryThrottle
from fusion.runtime.membership import Membership

#: Lowest priority that a reserved slot takes: HIGH.
HIGH = 2
#: Any priority.
ANY = 0


class Admission:
    """Reasons to take nothing though slots are free, and the slots that are kept for HIGH.

    - quiet: an operator said so (`quiet`, SIGTSTP), until `unquiet` or SIGCONT;
    - throttled: memory is scarce, see `MemoryThrottle`;
    - `reserve` slots are kept free for HIGH and above as long as there are others: what runs counts, not in which slot it was put.
    """

    def __init__(self, slots: int, reserve: int, throttle: MemoryThrottle | None, log: logging.Logger) -> None:
        self._slots, self._reserve, self._throttle, self._log = slots, reserve, throttle, log
        self.quiet = False

    @property
    def throttled(self) -> str:
        """What is scarce, like `RAM 92.1 %`; empty if nothing is."""
        return self._throttle.active if self._throttle else ""

    @property
    def open(self) -> bool:
        return not self.quiet and not self.throttled

    @property
    def next_at(self) -> float:
        """When memory is looked at again."""
        return self._throttle.next_at if self._throttle else float("inf")

    def floors(self, free: int, running: int) -> list[int]:
        """The lowest priority for each of `free` slots, those for any job first. Nothing while it is not open."""
        if not self.open:
            return []
        for_any = max(0, min(free, self._slots - running - self._reserve))
        return [ANY] * for_any + [HIGH] * (free - for_any)

    def set_quiet(self, quiet: bool, entry: Membership) -> bool:
        """Take no more jobs, or take them again; True if that is a change."""
        if quiet == self.quiet:
            return False
        self.quiet = quiet
        entry.note("quiet", "1" if quiet else "")
        self._log.info("quiet: running jobs go on, none is taken until `unquiet`" if quiet else "no longer quiet")
        return True

    def look(self, now: float, entry: Membership) -> bool:
        """Look at memory if that is due; True if jobs may be taken again."""
        if self._throttle is None or now < self._throttle.next_at:
            return False
        before = self.throttled
        said = self._throttle.check(now)
        if said:
            self._log.warning("%s", said)
        entry.note("throttled", self.throttled)
        return bool(before) and not self.throttled
