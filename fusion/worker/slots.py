"""The slots of a worker: which jobs it may claim now."""

from __future__ import annotations

from fusion.executors import readings
from fusion.executors.base import Executor
from fusion.runtime.free_slots import ANY, HIGH, FreeSlots
from fusion.settings import Settings
from fusion.store.layout.records import Claimed
from fusion.worker.admission import Admission, Blocked
from fusion.worker.recycling import Recycling


class Slots:
    """The executor's free slots, less those that admission and recycling withhold.

    `turn_due`: a slot became free, so a turn should claim jobs for it.
    """

    def __init__(self, settings: Settings, executor: Executor, admission: Admission, recycling: Recycling) -> None:
        self._executor, self._admission, self._recycling = executor, admission, recycling
        self._slots = settings.slots
        #: Processes that jobs of any class may wait in.
        self.lanes = settings.slots - settings.reserve_high
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
        return FreeSlots(floors, self.ahead(floors))

    def floors(self) -> list[int]:
        """The lowest priority for each slot that may take a job now."""
        executor = self._executor
        room, taken = executor.capacity, self._slots if executor.only_high else executor.taken + self.reserved
        free = max(0, room - self.reserved)
        floors = self._admission.floors(self._recycling.room(free), taken) if free else []
        if self.reserved and self._admission.open:  # a waiting call gives its slot to a job that must not wait
            floors += [HIGH] * (self._recycling.room(room) - len(floors))
        return floors

    def following(self, wanted: int) -> int:
        """The number of jobs that may be claimed for a call that has its slot, `wanted` at most."""
        return self._recycling.room(wanted) if self._admission.open else 0

    def ahead(self, floors: list[int]) -> int:
        """The number of jobs to claim beyond those for the free slots, whose `floors` these are."""
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
        return claimed.ahead and self._admission.open

    def take_slot(self) -> None:
        """Count a job that was started."""
        self._recycling.count(1)

    def release_slot(self, jobs: int = 1) -> None:
        """Take back the count of jobs that did not begin."""
        self._recycling.count(-jobs)
