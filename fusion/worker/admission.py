"""Says whether a worker takes jobs, which ones each free slot may take, and so what a turn may claim."""

from __future__ import annotations

import logging
from enum import Enum

from fusion.executors import readings
from fusion.executors.base import Executor
from fusion.kernel.memory import MemoryThrottle
from fusion.runtime.free_slots import ANY, HIGH, FreeSlots
from fusion.runtime.membership import Membership
from fusion.settings import Settings
from fusion.store.layout.records import Claimed
from fusion.worker.recycling import Recycling


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
        self._slots, self._reserve, self.throttle, self._log = slots, reserve, throttle, log
        #: Why no job is taken; empty if jobs are.
        self.blocked: set[Blocked] = set()
        #: True if this worker may ask Redis for jobs.
        self.open = True
        self.block(Blocked.THROTTLED, bool(self.scarce))

    @property
    def scarce(self) -> str:
        """Name the memory that is scarce, like `RAM 92.1 %`; empty if none is."""
        return self.throttle.active if self.throttle else ""

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
        self.open = self.blocked.isdisjoint(_CLOSING)
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
        if self.throttle is None or now < self.throttle.next_at:
            return False
        said = self.throttle.check(now)
        if said:
            self._log.warning("%s", said)
        entry.note("throttled", self.scarce)
        return self.block(Blocked.THROTTLED, bool(self.scarce)) and not self.scarce


class Slots:
    """The executor's free slots, less those that admission and recycling withhold.

    `turn_due`: a slot became free, so a turn should claim jobs for it.
    """

    def __init__(self, settings: Settings, executor: Executor, admission: Admission, recycling: Recycling) -> None:
        self._executor, self._admission, self._recycling = executor, admission, recycling
        self._slots, self._limited = settings.slots, settings.max_jobs is not None
        #: Processes in which a job of any class may wait behind another; 0 if the executor has none.
        self.lanes = settings.slots - settings.reserve_high if settings.executor == "pool" else 0
        self.turn_due = False
        #: Slots of batched calls that wait for more jobs, see `BatchedCalls`.
        self.reserved = 0

    @property
    def stopping(self) -> bool:
        """True if the worker ends: no slot takes a job."""
        return Blocked.RECYCLING in self._admission.blocked

    def free(self) -> FreeSlots:
        """The jobs that may be claimed now."""
        floors = self.floors()
        return FreeSlots(floors, self._ahead(floors) if self.lanes else 0)

    def floors(self) -> list[int]:
        """The lowest priority for each slot that may take a job now."""
        room, taken, only_high = self._executor.room()
        taken = self._slots if only_high else taken + self.reserved
        free = max(0, room - self.reserved)
        if self._limited:
            free = self._recycling.room(free)
        floors = self._admission.floors(free, taken) if free else []
        if self.reserved and self._admission.open:  # a waiting call gives its slot to a job that must not wait
            floors += [HIGH] * (self._recycling.room(room) - len(floors))
        return floors

    def following(self, wanted: int) -> int:
        """The number of jobs that may be claimed for a call that has its slot, `wanted` at most."""
        return self._recycling.room(wanted) if self._admission.open else 0

    def _ahead(self, floors: list[int]) -> int:
        """Return the number of jobs to claim beyond those for the free slots, whose `floors` these are."""
        if not self._admission.open:
            return 0
        room = self._executor.prefetch_room(self.lanes, floors.count(ANY))
        return max(0, self._recycling.room(len(floors) + room) - len(floors)) if room else 0

    def fits(self, claimed: Claimed) -> bool:
        """Say whether a slot is free for a job of its class."""
        floors = self.floors()
        return bool(floors) and readings.priority(claimed.fields) >= floors[0]

    def may_wait(self, claimed: Claimed) -> bool:
        """Return True if a job was claimed to wait behind another, and still may: since then this worker may have stopped taking jobs."""
        return claimed.ahead and self.lanes > 0 and self._admission.open

    def take_slot(self) -> None:
        """Count a job that was started."""
        self._recycling.jobs += 1

    def release_slot(self, jobs: int = 1) -> None:
        """Take back the count of jobs that did not begin."""
        self._recycling.jobs -= jobs
