"""What time brings, as the model has it: jobs whose time has come or is over, and queues that nobody uses any more."""

from __future__ import annotations

from collections import Counter

from tests.faults.model.people import People
from tests.faults.model.state import CANCELED_TTL, INBOX, TERMINAL

_QUEUE_MS, _TOTALS_MS = 86_400_000, 30 * 86_400_000


class Upkeep(People):
    """Calls of whoever does maintenance, but for those that look after workers."""

    def promote(self, limit: int) -> int:
        waiting = [job for job in self.of("scheduled") if job.due <= self.now / 1000]
        due = sorted((job.due, job.arrival if job.seq is None else job.seq, job.id) for job in waiting)[:limit]
        for _, _, job_id in due:
            job = self.jobs[job_id]
            if job.seq is not None:
                self.to_place(job)
            elif job.front:
                self.to_front(job)
                job.front = False
            else:
                self.line_up(job)
            self.emit("queued", job)
            self.arrive(job)
        self.look_due(limit)
        return len(due)

    def expire(self, limit: int) -> int:
        over = sorted((job.expires or 0, job.id) for job in self.expiring() if (job.expires or 0) <= self.now)[:limit]
        for _, job_id in over:
            self._out_of_inbox(self.jobs[job_id])
            self.end(self.jobs[job_id], "canceled", CANCELED_TTL)
            self.jobs[job_id].reason = True
            self.emit("expired", self.jobs[job_id])
        return len(over)

    def clean(self) -> bool:
        self._forget_totals()
        empty = {queue for queue in self.known_queues if self._is_empty(queue)}
        for job in [job for job in self.jobs.values() if job.status in TERMINAL and job.expiry < self.now // 1000]:
            del self.jobs[job.id]
        for queue in self.known_queues:
            if not self.waiting(queue):
                self.fair.pop(queue, None)
        self._forget_queues(empty)
        self.audit()
        return False

    def _is_empty(self, queue: str) -> bool:
        """Nothing is there, not even a job that ended. What failed, and what waits for a time, stands with that of all queues."""
        there = any(job.queue == queue and job.status not in ("failed", "scheduled") for job in self.jobs.values())
        return not there and queue not in self.paused and not (queue == INBOX and self.inbox)

    def _forget_queues(self, empty: set[str]) -> None:
        """Names of those that have been empty for a day."""
        for queue in list(self.known_queues):
            since = min(self.empty_since.pop(queue, self.now), self.now)
            if queue in empty and self.now - since >= _QUEUE_MS:
                self.known_queues.remove(queue)
                self.forgotten[queue] = self.now
            elif queue in empty:
                self.empty_since[queue] = since

    def _forget_totals(self) -> None:
        """Counters of queues that were forgotten a month ago, but of those that are in use again or have jobs that are to come."""
        for queue, at in list(self.forgotten.items()):
            if at > self.now - _TOTALS_MS:
                continue
            del self.forgotten[queue]
            counts = [n if what in ("enqueued", "requeued") else -n for (of, what, _), n in self.totals.items() if of == queue]
            if sum(counts) <= 0 and queue not in self.known_queues:
                self.totals = Counter({key: n for key, n in self.totals.items() if key[0] != queue})
