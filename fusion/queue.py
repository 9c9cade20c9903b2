"""The producer API: a named queue of jobs in three priorities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar, overload

from redis import Redis
from redis.exceptions import RedisError

from fusion.enqueue.build import JobData, new_id
from fusion.enqueue.call import QueueDefaults, terms_of, timed
from fusion.enqueue.enqueuer import Coro, Enqueuer
from fusion.enqueue.kinds import pause_terms
from fusion.enqueue.options import NONE, EnqueueOptions
from fusion.enqueue.sending import QueueSteps, repeats
from fusion.enqueue.template import Template
from fusion.exceptions import StoreUnavailable
from fusion.job import Job
from fusion.kernel import defaults
from fusion.kernel.gates import limit_gate, max_length_gate, max_wait_gate, rate_gate, timeout_gate
from fusion.settings import get_settings
from fusion.store.access import broker_of, calls_of, inspector_of
from fusion.store.client.connections import get_current_connection
from fusion.store.layout.names import check_queue_name
from fusion.store.scripting.host import Steps, run
from fusion.store.write.enqueue_command import Own
from fusion.store.write.queue_calls import QueueCalls

if TYPE_CHECKING:
    from typing import Unpack

    from fusion.enqueue.typed import CallOptions
    from fusion.store.read.totals import QueueStats

T = TypeVar("T")
R = TypeVar("R")


class PriorityQueue(QueueSteps):
    """A queue. Higher priority runs first; inside one priority, jobs run in the order in which they were enqueued.

    Creating one sends nothing to Redis. Every `enqueue` is one round trip; when it has returned, the job is stored in Redis. It raises these
    with nothing written: ValueError for a bad option, SerializationError for an argument that is no JSON, PayloadTooLarge, DuplicateJob,
    QueueFull. It raises StoreUnavailable while Redis can't be reached: the job may or may not have been accepted, and the error's `repeat()`
    is safe.

    `default_timeout`: the timeout of jobs that name none. `serializer`: "json" or "pickle", in place of the setting; pickle only where the
    settings allow it.
    """

    def __init__(
        self,
        name: str = defaults.QUEUE,
        connection: Redis | None = None,
        *,
        default_timeout: float | str | None = None,
        serializer: str | None = None,
    ) -> None:
        self.name = check_queue_name(name)
        self._connection = connection
        self._defaults = QueueDefaults(default_timeout, serializer)
        self._own = self._defaults.text

    @property
    def connection(self) -> Redis:
        """The client that was given, else this process's own."""
        return self._connection if self._connection is not None else get_current_connection()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PriorityQueue) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __len__(self) -> int:
        return self.count

    # -- enqueueing

    @overload
    def enqueue(self, f: Callable[..., Coro[R]], /, *args: Any, **kwargs: Any) -> Job[R]: ...
    @overload
    def enqueue(self, f: Callable[..., R], /, *args: Any, **kwargs: Any) -> Job[R]: ...
    @overload
    def enqueue(self, f: str, /, *args: Any, **kwargs: Any) -> Job[Any]: ...
    def enqueue(self, f: str | Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call of `f`, a function or its dotted path.

        Keywords that `EnqueueOptions` names are options (priority, job_timeout, result_ttl, ttl, job_id, retry, log_tag ...), all others are
        the task's; TypeError for one that the function does not take, or that looks like a misspelled option. `args=` and `kwargs=` pass the
        task's arguments separately, as in RQ, and unchecked.
        """
        sent: Job = self._call(f, args, kwargs)
        return sent

    def options(self, **options: Unpack[CallOptions]) -> Enqueuer[Job]:
        """Return this queue with options for all jobs enqueued through it; all arguments after the function are then the function's own.

        `high = queue.options(priority="high", ttl="5m"); high.enqueue(send, to, ttl=3)`. UnknownOption if there is no such option.
        """
        return Enqueuer(self, self._defaults, options)

    @overload
    def enqueue_at(self, when: datetime, f: Callable[..., Coro[R]], /, *args: Any, **kwargs: Any) -> Job[R]: ...
    @overload
    def enqueue_at(self, when: datetime, f: Callable[..., R], /, *args: Any, **kwargs: Any) -> Job[R]: ...
    @overload
    def enqueue_at(self, when: datetime, f: str, /, *args: Any, **kwargs: Any) -> Job[Any]: ...
    def enqueue_at(self, when: datetime, f: str | Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """Enqueue for a time, an aware datetime. The job waits in the schedule, which all queues share, until it is due by the server's
        clock. One that is due already is queued at once. Its `ttl` begins when it is due.

        TypeError if it is not a datetime; ValueError for a naive one and for one over 1e9 s (31 years) ahead.
        """
        return self.enqueue(f, *args, **timed("enqueue_at", when, kwargs))

    @overload
    def enqueue_in(self, delta: timedelta | float | str, f: Callable[..., Coro[R]], /, *args: Any, **kwargs: Any) -> Job[R]: ...
    @overload
    def enqueue_in(self, delta: timedelta | float | str, f: Callable[..., R], /, *args: Any, **kwargs: Any) -> Job[R]: ...
    @overload
    def enqueue_in(self, delta: timedelta | float | str, f: str, /, *args: Any, **kwargs: Any) -> Job[Any]: ...
    def enqueue_in(self, delta: timedelta | float | str, f: str | Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """Enqueue for a time that is this far from now by the server's clock: a timedelta, seconds, or a text like "5m". ValueError for
        anything else, and for a negative one."""
        return self.enqueue(f, *args, **timed("enqueue_in", delta, kwargs))

    def enqueue_call(
        self,
        func: str | Callable[..., Any],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | str | None = None,
        **options: Unpack[CallOptions],
    ) -> Job:
        """Enqueue with the task's arguments apart from the options, so that no name can be mistaken."""
        sent: Job = self._call_apart(func, args, kwargs, timeout, options)
        return sent

    def enqueue_many(
        self,
        job_datas: Iterable[JobData],
        *,
        spread: float | str | timedelta | None = None,
        max_queue_length: int | None = None,
        durability: str | None = None,
        replicas: int | None = None,
        replicas_timeout: float | str | None = None,
        on_commit: bool | None = None,
    ) -> list[Job]:
        """Enqueue many jobs, one round trip per chunk: 150 of them or 1 MiB, a larger job alone. Jobs with concurrency keys, parents,
        batches, unique or fair keys cost the server more, so their chunks are smaller, down to 30.

        `spread` makes them due at even distances over this time by the server's clock, the first at once. A generator is then read whole
        before anything is sent; OptionError if a job has a time of its own. With middleware a generator is read whole, too. The first chunk
        of a list or tuple checks that there is room for all of it. `max_queue_length`, `durability` ...: as for `enqueue`.

        If it raises, the chunks before were accepted. DuplicateJob if a living job of another call has one of the ids, QueueFull if there is
        no room: then nothing of that chunk was written. `accepted` of QueueFull are the jobs of the chunks before. After any error the same
        data can be sent again: jobs that were accepted already are not accepted twice.
        """
        options = EnqueueOptions(
            max_queue_length=max_queue_length,
            durability=durability,
            replicas=replicas,
            replicas_timeout=replicas_timeout,
            on_commit=on_commit,
        )
        return self._run(self._many(job_datas, spread, options))

    def _run(self, steps: Steps[T]) -> T:
        try:
            return run(steps, self.connection)
        except StoreUnavailable as error:
            repeats(error, self._run)
            raise

    def _quickly(self, template: Template, connection: Redis, data: bytes, stored: bytes, own: Own | None) -> Job:
        nonce = new_id()
        try:
            at = template.command.accepted(template.command.send(nonce, stored, own))
        except (RedisError, OSError) as error:
            steps = self._anew(template, nonce.decode(), data, own, error)
        else:
            if type(at) is str:
                return template.job(nonce.decode(), data, own, at, connection)
            return self._accepted(template, nonce.decode(), data, own, at, connection)
        return self._run(steps)

    def _store(self) -> tuple[QueueCalls, Redis]:
        connection = self.connection
        return calls_of(connection), connection

    def _later(self) -> PriorityQueue:
        return self

    # -- looking

    @property
    def count(self) -> int:
        """The number of waiting jobs; O(1)."""
        return inspector_of(self.connection).count(self.name)

    def stats(self) -> QueueStats:
        """Return how many jobs wait and run, since when the oldest waits, and the lifetime counters; O(1).

        `queue.stats().totals["completed"]`; the counters are in docs/operations.md, "Lifetime counters".
        """
        return inspector_of(self.connection).stats(self.name)

    def is_empty(self) -> bool:
        """Return True if no job waits."""
        return self.count == 0

    def get_job_ids(self, offset: int = 0, length: int = 100) -> list[str]:
        """Return a page of waiting ids, the next to run first."""
        return inspector_of(self.connection).waiting(self.name, offset, length)

    def get_jobs(self, offset: int = 0, length: int = 100) -> list[Job]:
        """Return a page of waiting jobs, the next to run first."""
        return [job for job in Job.fetch_many(self.get_job_ids(offset, length), self.connection) if job is not None]

    def fetch_job(self, job_id: str) -> Job | None:
        """Return the job with this id if it is of this queue, else None."""
        (job,) = Job.fetch_many([job_id], self.connection)
        return job if job is not None and job.origin == self.name else None

    @classmethod
    def all(cls, connection: Redis | None = None) -> list[PriorityQueue]:
        """Return every queue that jobs were ever enqueued to."""
        connection = connection if connection is not None else get_current_connection()
        return [cls(name, connection) for name in inspector_of(connection).queue_names()]

    # -- changing

    def pause(self, duration: float | str | timedelta | None = None, *, reason: str = "", by: str = "") -> None:
        """Start no more jobs of the queue, from the moment this returns, for `duration` or until `resume`. Running jobs go on, and jobs can
        still be enqueued. Survives restarts of workers and, with its data, of Redis. Pausing a paused queue replaces its end and reason.

        `reason` and `by` are shown wherever the queue is shown: one line each, of up to 500 characters. `by` defaults to the user and the
        host. OptionError for an invalid text, and for a duration not over 0.
        """
        time, told = pause_terms(duration, reason, by)
        broker_of(self.connection).pause(self.name, time, **told)

    def resume(self) -> bool:
        """Start its jobs again; False if it was not paused."""
        return broker_of(self.connection).unpause(self.name) is not None

    def set_max_length(self, length: int | None) -> None:
        """Set how many jobs may wait in it, from the next enqueue on and whoever makes it: one more raises QueueFull. With None each
        producer's setting `max_queue_length` applies. Jobs that wait already stay. OptionError if it is not a whole number from 1."""
        broker_of(self.connection).set_gate(self.name, max_length_gate(length))

    def set_timeout(self, timeout: float | str | timedelta | None) -> None:
        """Set after how long waiting jobs expire, for jobs enqueued from now on without a `ttl`; for scheduled ones the time begins when they
        are due. With None each producer's setting `queue_timeout` applies. OptionError for a duration not over 0."""
        broker_of(self.connection).set_gate(self.name, timeout_gate(timeout))

    def set_limit(self, limit: int | None) -> None:
        """Set how many of its jobs may run at once, over all workers, from the next claim on; None: as many as there are slots. Running jobs
        go on. OptionError."""
        broker_of(self.connection).set_gate(self.name, limit_gate(limit))

    def set_rate(self, rate: str | None, burst: int | None = None) -> None:
        """Set the rate at which its jobs may start, over all workers: "100/60s", "10/s", "5/2m"; None: as fast as they can. Starts are what
        counts, by Redis's clock: if workers were away, the backlog starts at the rate.

        Starts are spread evenly. After a rest `burst` jobs may start at once; by default as many as the rate allows in a second, but at least
        1. The call also ends a hold by `rate_limited` of a task. OptionError.
        """
        broker_of(self.connection).set_gate(self.name, rate_gate(rate, burst))

    def set_max_wait(self, max_wait: float | str | timedelta | None) -> None:
        """Keep its lower priorities from starving. If the oldest job of a priority has waited longer than this, it is next at every tenth
        claim of the workers that serve the queue. Slots that `--reserve-high` keeps are excepted. None: a higher priority always comes first.
        OptionError."""
        broker_of(self.connection).set_gate(self.name, max_wait_gate(max_wait))

    def empty(self, *, purge: bool = False) -> int:
        """Delete all waiting jobs and return how many. Running ones are not touched. `Trash` restores them for an hour, unless `purge`."""
        from fusion.trash import Trash

        return Trash(self.connection).empty_queue(self.name, purge=purge).deleted


Queue = PriorityQueue


def enqueue_together(pairs: Iterable[tuple[PriorityQueue, JobData]], on_commit: bool | None = None) -> list[Job]:
    """Enqueue jobs, each to its own queue: either all are accepted or none. Each is sent after those that it waits for. Adjacent jobs of one
    queue are sent together, and the first queue's connection sends all. Raises what `enqueue_many` does."""
    terms = terms_of(NONE if on_commit is None else EnqueueOptions(on_commit=on_commit), get_settings())
    found: list[tuple[PriorityQueue, list[JobData]]]
    found = [(queue, [data for _, data in run]) for queue, run in groupby(pairs, itemgetter(0))]
    if len(found) == 1:
        ((queue, datas),) = found
        return queue.enqueue_many(datas, on_commit=on_commit)
    first, parts = found[0][0], [(queue.name, datas) for queue, datas in found]
    return first._run(first._together(parts, terms))
