"""The failed queue: one for all, whatever queue a job failed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from redis import Redis

from fusion.job import Job
from fusion.options import new_nonce
from fusion.store.access import broker_of, inspector_of
from fusion.store.connections import get_current_connection

#: Jobs requeued in one call of the server.
CHUNK = 100


class FailedQueue:
    def __init__(self, connection: Redis | None = None) -> None:
        self._connection = connection

    @property
    def connection(self) -> Redis:
        return self._connection if self._connection is not None else get_current_connection()

    def __len__(self) -> int:
        return self.count

    @property
    def count(self) -> int:
        return inspector_of(self.connection).failed_count()

    def get_job_ids(self, offset: int = 0, length: int = 100) -> list[str]:
        """A page of failed ids, the first to expire first."""
        return inspector_of(self.connection).members("failed", "", offset, length)

    def get_jobs(self, offset: int = 0, length: int = 100) -> list[Job]:
        return [job for job in Job.fetch_many(self.get_job_ids(offset, length), self.connection) if job is not None]

    def requeue(self, job_id: str, *, keep_place: bool = False) -> None:
        """Put one job back to the queue it came from, at its old priority. NoSuchJobError, or InvalidJobOperation if it has not failed."""
        Job(job_id, {}, self.connection).requeue(keep_place=keep_place)

    def requeue_set(self, job_id: str) -> None:
        """`requeue`, by the name it has where queues of different types are requeued differently. Here all are alike."""
        self.requeue(job_id)

    def requeue_all(
        self, queue: str | None = None, *, keep_place: bool = False, progress: Callable[[int], None] | None = None
    ) -> tuple[int, dict[str, str]]:
        """Put back every job that is failed now, or those of one queue, in the order in which they failed.

        Returns how many went back, and why others did not, by id. `progress` is told the number looked at after each chunk. What fails
        again meanwhile is left; an interrupted call has moved whole jobs and can be repeated.
        """
        moved, refused = 0, {}
        for ids in self._chunks(queue):
            answers = broker_of(self.connection).requeue(ids, new_nonce(), keep_place=keep_place)
            for job_id, answer in zip(ids, answers, strict=True):
                if answer == "ok":
                    moved += 1
                elif answer != "missing":
                    refused[job_id] = answer
            if progress:
                progress(len(ids))
        return moved, refused

    def _chunks(self, queue: str | None) -> Iterator[list[str]]:
        ids = self.get_job_ids(0, self.count)
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            if queue is not None:
                jobs = Job.fetch_many(chunk, self.connection)
                chunk = [job.id for job in jobs if job is not None and job.original_queue == queue]
            if chunk:
                yield chunk
