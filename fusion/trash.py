"""The trash: jobs that were deleted can be restored for an hour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from redis import Redis

from fusion.kernel.nonces import new_nonce
from fusion.store.access import broker_of, calls_of, trash_inspector_of
from fusion.store.client.connections import get_current_connection
from fusion.store.scripting.host import run

if TYPE_CHECKING:
    from fusion.store.read.trash_inspector import TrashEntry

#: Jobs of one call.
_CHUNK = 50


class Thrown(NamedTuple):
    """The numbers of deleted jobs and of those that can be restored, and whether jobs are left for lack of time."""

    deleted: int
    kept: int
    more: bool = False


class Restored(NamedTuple):
    """The number of restored jobs, and for each other job, by id, the reason: `missing` (it is not in the trash, or no longer), `taken` (a
    job of this id lives), `duplicate <id>` (that job has its unique key), `full` (its queue takes no more), `expired` (its ttl is over),
    `error: ...`."""

    restored: int
    refused: dict[str, str]


#: These reasons in words.
_WHY = {
    "missing": "it is not in the trash; what was deleted stays there for an hour",
    "taken": "a job of this id lives; delete or rename that one first",
    "full": "its queue takes no more jobs; raise its max_length first",
    "expired": "its ttl is over",
}


def why_not_restored(answer: str) -> str:
    """Return in words why a job can't be restored."""
    if answer.startswith("duplicate "):
        return f"job {answer.removeprefix('duplicate ')} has its unique key by now"
    if answer.startswith("cycle "):
        return f"it would wait for itself: {answer.removeprefix('cycle ')}"
    return _WHY.get(answer, answer.removeprefix("error: "))


class Trash:
    """Deleted jobs, up to 10,000 and 64 MB of them. They hold nothing: no id, no unique key, no slot of a concurrency key."""

    def __init__(self, connection: Redis | None = None) -> None:
        self.connection = connection if connection is not None else get_current_connection()

    @property
    def count(self) -> int:
        """Return how many jobs are in it."""
        return trash_inspector_of(self.connection).count()

    def __iter__(self) -> Iterator[TrashEntry]:
        return trash_inspector_of(self.connection).all()

    def delete(
        self, job_ids: Iterable[str], *, purge: bool = False, progress: Callable[[int], None] | None = None
    ) -> dict[str, str]:
        """Delete jobs that are not running. Returns an answer for each id: `kept` (it is in the trash), `deleted` (for good: as asked, or as
        there was no room), `missing`, `started`, or another answer of `Broker.delete`. `progress` is called after each part with the number
        of jobs in it."""
        keep = self._keeps(purge)
        broker = broker_of(self.connection)
        answers: dict[str, str] = {}
        for ids in _chunks(dict.fromkeys(job_ids)):
            answers |= zip(ids, broker.delete_to_trash(ids) if keep else broker.delete(ids), strict=True)
            if progress:
                progress(len(ids))
        return answers

    def empty_queue(self, queue: str, *, purge: bool = False, seconds: float = inf) -> Thrown:
        """Delete the jobs that wait in a queue: all, or as many as it can in `seconds`. Running jobs are not touched."""
        connection = self.connection
        return Thrown(*run(calls_of(connection).empty_steps(queue, purge=purge, seconds=seconds), connection))

    def restore(self, job_ids: Iterable[str], progress: Callable[[int], None] | None = None) -> Restored:
        """Restore jobs: ended ones to where they were, others to their old places, where they wait for their time or their turn. Limits,
        unique keys and parents are checked again. `progress` is called after each part with the number of jobs examined."""
        restored, refused = 0, dict[str, str]()
        for ids in _chunks(dict.fromkeys(job_ids)):
            answers = broker_of(self.connection).restore(ids, new_nonce())
            restored += answers.count("restored")
            refused |= {job_id: answer for job_id, answer in zip(ids, answers, strict=True) if answer != "restored"}
            if progress:
                progress(len(ids))
        return Restored(restored, refused)

    def empty(self, progress: Callable[[int], None] | None = None) -> int:
        """Delete for good all that is in it; returns how many. `progress` is called after each part with the number of jobs in it."""
        count, again = 0, True
        while again:
            dropped, again = broker_of(self.connection).empty_trash()
            count += dropped
            if progress:
                progress(dropped)
        return count

    def _keeps(self, purge: bool) -> bool:
        return not purge and broker_of(self.connection).may_keep()


def _chunks(job_ids: Iterable[str]) -> Iterator[list[str]]:
    ids = iter(job_ids)
    while part := list(islice(ids, _CHUNK)):
        yield part
