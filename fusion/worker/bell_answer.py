"""An idle worker's answer to a doorbell, as soon as can be."""

from __future__ import annotations

from math import inf

from fusion.executors.base import Executor
from fusion.runtime.consumer import Consumer
from fusion.worker.blocked import BlockedWork
from fusion.worker.probation import Probation
from fusion.worker.slots import Slots


class BellAnswer:
    """The turn that an idle worker takes when a doorbell rings: encoded while it waits, sent before all else that is due, and the process
    that would get the job is woken while Redis looks for one.

    Nothing rests on any of it: a turn that is another one by then is encoded anew, and a process that was woken for nothing sleeps again.
    """

    def __init__(
        self, consumer: Consumer, executor: Executor, slots: Slots, blocked_work: BlockedWork, probation: Probation
    ) -> None:
        self._consumer, self._executor, self._slots = consumer, executor, slots
        self._blocked_work, self._probation = blocked_work, probation

    @property
    def next_at(self) -> float:
        """At once if a doorbell rang while nothing runs and there is nothing to tell, else never: the turn is one like others."""
        return 0.0 if self._consumer.rung and not self._executor.busy else inf

    def make_ready(self, now: float) -> None:
        """Encode the turn, if nothing runs and that is not done."""
        if not self._executor.busy and (slots := self._slots.free()).floors:
            self._consumer.make_ready(slots, self._blocked_work.wishes(now, self._probation))
