"""What one turn reads of the sets of blocked jobs."""

from __future__ import annotations

from tests.faults.model.state import Job, State, Wish


class Lines:
    """The sets of blocked jobs as one turn sees them: it reads each once, and again only when it has used up what it read and there were
    more. So a job that it sets aside itself is for a later turn."""

    def __init__(self, model: State, wish: Wish) -> None:
        self._model, self.wish = model, wish
        #: Slots that are still free.
        self.wanted = 0
        self._read: dict[tuple[str, str], tuple[list[Job], bool]] = {}

    def head(self, kind: str, queue: str) -> Job | None:
        jobs, whole = self._read.get((kind, queue), ([], False))
        jobs = [job for job in jobs if job.status == "blocked" and (job.waits_in or "").startswith(kind)]
        if not jobs and not whole:
            count = self.wanted + 1 if (kind, queue) in self._read else 2
            jobs = self._model.blocked_of(kind, queue)[:count]
            whole = len(jobs) < count
        self._read[kind, queue] = jobs, whole
        return jobs[0] if jobs else None
