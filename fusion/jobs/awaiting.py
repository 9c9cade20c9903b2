"""What a wait for a job, or for it and all that depends on it, has still to look at. It asks nobody: who waits does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from fusion.exceptions import NoSuchJobError
from fusion.status import TERMINAL, JobStatus

#: Jobs of one look.
_LOOK = 100


class Awaited:
    """A job and all that depends on it, as far as is known. A look is at a hundred of them at most: those not seen yet, else some that had not
    ended. Children are looked for when a job is first seen, and again when it has ended: it gets none after that which were there before."""

    def __init__(self, job_id: str) -> None:
        self._id = job_id
        self._fresh: dict[str, None] = {job_id: None}
        self._open: dict[str, None] = {}
        self._known = {job_id}
        self.status: JobStatus | None = None

    def look_at(self) -> list[str]:
        """Ids whose status is to be read; none once all have ended."""
        return [*islice(self._fresh or self._open, _LOOK)]

    def saw(self, ids: Sequence[str], statuses: Sequence[str | None]) -> list[str]:
        """Their statuses, None for those that are gone. Returns the ids whose children are to be read. NoSuchJobError if the job itself is gone."""
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
        """Children of one of these."""
        for child in children:
            if child not in self._known:
                self._known.add(child)
                self._fresh[child] = None
                self.at_once = True

    #: There is something to look at that may have changed since, or was never looked at.
    at_once = True

    def late(self, timeout: float | None) -> TimeoutError:
        """That time is over."""
        left = len(self._open) + len(self._fresh)
        return TimeoutError(f"of job {self._id} and those that depend on it {left} have not ended after {timeout} s")
