"""The wait for the end of a job, alone or with its dependents, as steps for threads and coroutines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import inf
from time import monotonic

from fusion.exceptions import NoSuchJobError
from fusion.status import TERMINAL, JobStatus
from fusion.store.read.inspector import Inspector
from fusion.store.scripting.host import Pause, Steps

#: Jobs read at a time.
_LOOK = 100


def wait_steps(
    inspector: Inspector, job_id: str, timeout: float | None, tree: bool, saw: Callable[[str], object] | None = None
) -> Steps[JobStatus]:
    """Wait until the job has ended, and with `tree` all that depend on it; returns the job's status. TimeoutError, NoSuchJobError. `saw` is
    called with each status of the job alone that was read."""
    deadline = inf if timeout is None else monotonic() + timeout
    awaited = Awaited(job_id) if tree else None
    pause = 0.002
    while True:
        if awaited is None:
            (status,) = yield from inspector.statuses_steps([job_id])
            if status is None:
                raise NoSuchJobError(f"no job {job_id!r}")
            if saw is not None:
                saw(status)
            if status in TERMINAL:
                return JobStatus(status)
            late = TimeoutError(f"job {job_id} is {status} after {timeout} s")
        else:
            if not (ids := awaited.look_at()):
                return JobStatus(awaited.status)
            parents = awaited.saw(ids, (yield from inspector.statuses_steps(ids)))
            awaited.met((yield from inspector.all_children_steps(parents)))
            late = awaited.late(timeout)
        if (left := deadline - monotonic()) <= 0:
            raise late
        if awaited is None or not awaited.at_once:
            yield Pause(min(pause, left))
            pause = min(pause * 1.5, 0.2)


class Awaited:
    """A job and all known jobs that depend on it. Each round reads up to a hundred of them: those not read yet, else some that have not
    ended. A job's children are read when it is first seen, and again when it has ended, because it gets no new ones after that."""

    def __init__(self, job_id: str) -> None:
        self._id = job_id
        self._fresh: dict[str, None] = {job_id: None}
        self._open: dict[str, None] = {}
        self._known = {job_id}
        self.status: JobStatus | None = None

    def look_at(self) -> list[str]:
        """Return the ids whose status to read next; empty once all have ended."""
        return [*islice(self._fresh or self._open, _LOOK)]

    def saw(self, ids: Sequence[str], statuses: Sequence[str | None]) -> list[str]:
        """Take the statuses of these jobs, None for one that is gone. Return the ids whose children to read. NoSuchJobError if the job itself is
        gone."""
        asked = []
        for job_id, status in zip(ids, statuses, strict=True):
            if status is None and job_id == self._id and self.status is None:
                raise NoSuchJobError(f"no job {job_id!r}")
            ended = status is None or status in TERMINAL
            if ended and job_id == self._id:
                self.status = JobStatus(status)
            if ended or job_id in self._fresh:
                asked.append(job_id)
            self._fresh.pop(job_id, None)
            if ended:
                self._open.pop(job_id, None)
            else:
                self._open[job_id] = None
        self.at_once = bool(self._fresh) or len(self._open) < 1 or all(job_id not in self._open for job_id in ids)
        return asked

    def met(self, children: Iterable[str]) -> None:
        """Take the children of one of these jobs."""
        for child in children:
            if child not in self._known:
                self._known.add(child)
                self._fresh[child] = None
                self.at_once = True

    #: True if the next round can start without a pause: some jobs were never read, or may have changed since.
    at_once = True

    def late(self, timeout: float | None) -> TimeoutError:
        """Return the error for a wait that timed out."""
        left = len(self._open) + len(self._fresh)
        return TimeoutError(f"of job {self._id} and those that depend on it {left} have not ended after {timeout} s")
