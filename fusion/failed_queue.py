"""The failed queue: one for all, whatever queue a job failed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from fusion.job import Job
from fusion.jobs.failures import CHUNK, FailedFilter, Failure, FailureGroup, group, scan
from fusion.kernel.nonces import new_nonce
from fusion.registries import JobRegistry
from fusion.store.access import broker_of, inspector_of

#: Jobs read in one round trip when all are scanned.
_LOOK = 1000


class Moved(NamedTuple):
    """The number of jobs that were moved, and for each other job, by id, the reason: `missing`, `corrupt` (it has no data to run),
    `quarantined`, `error: ...` (a broken key), `duplicate <id>` (that job has its unique key), or its present status."""

    moved: int
    refused: dict[str, str]


class FailedQueue(JobRegistry):
    """The failed jobs of all queues: list, requeue and quarantine them."""

    @property
    def count(self) -> int:
        """The number of failed jobs that are kept; O(1)."""
        return inspector_of(self.connection).failed_count()

    def get_job_ids(self, offset: int = 0, length: int = 100) -> list[str]:
        """Return a page of failed ids, the first to expire first."""
        return inspector_of(self.connection).members("failed", "", offset, length)

    # -- one job

    def requeue(self, job_id: str, *, keep_place: bool = False) -> None:
        """Put one job back to the queue it came from, at its old priority, quarantined or not.

        NoSuchJobError, or InvalidJobOperation if it has not failed.
        """
        Job(job_id, {}, self.connection).requeue(keep_place=keep_place)

    def requeue_set(self, job_id: str) -> None:
        """Requeue one job, as `requeue` does. The name is for callers that requeue each type of queue differently; here all are alike."""
        self.requeue(job_id)

    # -- many

    def requeue_all(
        self,
        filter: FailedFilter | str | None = None,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        keep_place: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Moved:
        """Requeue every job that is failed now, or those that match `filter` (a text: those of that queue), in the order in which they
        failed.

        `progress` is called after each chunk with the number of jobs examined. `dry_run` counts and moves nothing. Jobs that fail again
        meanwhile are left. An interrupted call has moved whole jobs and can be repeated. A job that can't be requeued stops no other.
        """
        wanted = FailedFilter(queue=filter) if isinstance(filter, str) else filter or FailedFilter()
        moved, refused = 0, dict[str, str]()
        for seen, found in scan(inspector_of(self.connection), wanted):
            if limit is not None:
                found = found[: limit - moved]
            ids = [failure.id for failure in found]
            if ids:
                answers = [f.problem or "ok" for f in found] if dry_run else self._requeue(ids, wanted, keep_place)
                moved += answers.count("ok")
                refused |= {i: a for i, a in zip(ids, answers, strict=True) if a not in ("ok", "missing", "quarantined")}
            if progress:
                progress(seen)
            if limit is not None and moved >= limit:
                break
        return Moved(moved, refused)

    def requeue_many(self, job_ids: Iterable[str]) -> Moved:
        """Requeue these jobs, as `requeue_all` does. Quarantined ones are refused."""
        return _told(
            ((len(ids), ids) for ids in _chunks(job_ids)), lambda ids: self._requeue(ids, FailedFilter(), keep_place=False)
        )

    def _requeue(self, ids: Sequence[str], wanted: FailedFilter, keep_place: bool) -> list[str]:
        broker = broker_of(self.connection)
        return broker.requeue(ids, new_nonce(), keep_place=keep_place, quarantined=wanted.include_quarantined)

    def quarantine(
        self, jobs: Iterable[str] | FailedFilter, reason: str, *, progress: Callable[[int], None] | None = None
    ) -> Moved:
        """Quarantine failed jobs, by id or filter: they stay failed, but `requeue_all` leaves them out by default.

        `reason` is shown with them; a later one replaces it. `requeue` and `delete` end the quarantine. ValueError without a reason.
        `progress` is called after each chunk with the number of jobs examined.
        """
        if not reason.strip():
            raise ValueError("quarantine needs a reason, for people who find the jobs later")
        if isinstance(jobs, FailedFilter):
            looked = scan(inspector_of(self.connection), jobs)
            chunks: Iterable[tuple[int, list[str]]] = ((seen, [f.id for f in found]) for seen, found in looked)
        else:
            chunks = ((len(ids), ids) for ids in _chunks([jobs] if isinstance(jobs, str) else jobs))
        return _told(chunks, lambda ids: broker_of(self.connection).quarantine(ids, reason), progress)

    # -- looking

    def failures(self, filter: FailedFilter | None = None) -> Iterator[Failure]:
        """Yield the failures that match, the first to expire first; without a filter all, quarantined ones too."""
        for _, found in scan(inspector_of(self.connection), filter or FailedFilter(include_quarantined=True), _LOOK):
            yield from found

    def groups(self, filter: FailedFilter | None = None) -> list[FailureGroup]:
        """Return the failures that match, counted by error class and by the place in the user's own code that raised; the most frequent first."""
        return group(self.failures(filter))


def _told(
    chunks: Iterable[tuple[int, list[str]]],
    call: Callable[[list[str]], list[str]],
    progress: Callable[[int], None] | None = None,
) -> Moved:
    moved, refused = 0, dict[str, str]()
    for seen, ids in chunks:
        answers = call(ids) if ids else []
        if progress:
            progress(seen)
        moved += answers.count("ok")
        refused |= {i: a for i, a in zip(ids, answers, strict=True) if a != "ok"}
    return Moved(moved, refused)


def _chunks(job_ids: Iterable[str]) -> Iterator[list[str]]:
    ids = list(dict.fromkeys(job_ids))
    for start in range(0, len(ids), CHUNK):
        yield ids[start : start + CHUNK]
