"""The worker that `fusion.rq.Worker.work` runs: it notes whether it was asked to end while a job ran."""

from __future__ import annotations

from datetime import datetime

from fusion.kernel.timeutil import now
from fusion.runtime.process import Phase
from fusion.worker.worker import Worker


class CoreWorker(Worker):
    """A worker that notes how it was asked to end."""

    #: When it was asked to while a job ran; None if it was not.
    asked_at: datetime | None = None
    #: True if its jobs were killed.
    cold = False

    def drain(self, why: str) -> None:
        """See `Worker`."""
        if why and self.phase < Phase.DRAINING and self.executors.busy:
            self.asked_at = now()
        super().drain(why)

    def kill(self) -> None:
        """See `Worker`."""
        self.cold = True
        super().kill()
