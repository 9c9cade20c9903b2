"""The producer API for asyncio: what `Queue` does, without blocking a thread. For further changes of jobs, use `Job`."""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from redis.asyncio import Redis
from redis.exceptions import RedisError

from fusion.enqueue.build import JobData, new_id
from fusion.enqueue.call import QueueDefaults, timed
from fusion.enqueue.enqueuer import Coro, Enqueuer
from fusion.enqueue.kinds import pause_terms
from fusion.enqueue.options import EnqueueOptions, Func
from fusion.enqueue.sending import QueueSteps, repeats
from fusion.enqueue.template import Check, Given, Template
from fusion.exceptions import NoSuchJobError, StoreUnavailable
from fusion.job import Job
from fusion.jobs.awaiting import wait_steps
from fusion.kernel import defaults
from fusion.kernel.gates import limit_gate, max_length_gate, max_wait_gate, rate_gate, timeout_gate
from fusion.queue import Queue
from fusion.status import JobStatus, check_called_off
from fusion.store.access import async_calls_of, async_reads_of
from fusion.store.client.async_connections import close_loops_client, loops_client
from fusion.store.layout.names import check_queue_name
from fusion.store.read.inspector import Inspector, QueueStats
from fusion.store.scripting.host import Call, Steps, run_awaited
from fusion.store.write.enqueue_command import Own
from fusion.store.write.queue_calls import QueueCalls

if TYPE_CHECKING:
    from typing import Unpack

    from fusion.enqueue.typed import CallOptions

T = TypeVar("T")
R = TypeVar("R")
_Func = str | Callable[..., Any]


class _Elsewhere:
    """Stands in for the connection of a returned job, whose methods would block the event loop; any use raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            "a job that an AsyncQueue returned has no connection, since its methods would block the event loop; "
            "ask the queue (await queue.fetch_job(job.id), get_status, wait ...), or in a thread: await asyncio.to_thread(Job.fetch, job.id)"
        )


_ELSEWHERE: Any = _Elsewhere()


class AsyncQueue(QueueSteps):
    """A queue for coroutines. It takes the options of `Queue`, raises the same errors and gives the same guarantees. Each call is one round
    trip.

    Without a `connection` (a redis.asyncio client, which the caller closes), all AsyncQueues of an event loop share one, made from the
    settings. A returned Job shows what was accepted; don't call its methods that read Redis in a coroutine. If a task is cancelled while it
    waits for the reply, the job may or may not have been accepted. To be sure, prepare the job and enqueue the same data again.
    """

    def __init__(
        self,
        name: str = defaults.QUEUE,
        connection: Redis | None = None,
        *,
        default_timeout: float | str | None = None,
        serializer: str | None = None,
    ) -> None:
        if connection is not None and not isinstance(connection, Redis):
            raise TypeError(
                f"connection: {type(connection).__name__} is not a client for asyncio; use redis.asyncio.Redis, or Queue"
            )
        self.name = check_queue_name(name)
        self._connection = connection
        self._defaults = QueueDefaults(default_timeout, serializer)
        self._own = self._defaults.text

    @property
    def connection(self) -> Redis:
        """The client that was given, else the one that the queues of this event loop share."""
        return self._connection if self._connection is not None else loops_client()

    def __repr__(self) -> str:
        return f"AsyncQueue({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncQueue) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that the queues of this event loop share; a later call opens new ones. A `connection` that was passed in
        stays open."""
        if self._connection is None:
            await close_loops_client()

    @overload
    async def enqueue(self, f: Callable[..., Coro[R]], /, *args: Any, **kwargs: Any) -> Job[R]: ...
    @overload
    async def enqueue(self, f: Callable[..., R], /, *args: Any, **kwargs: Any) -> Job[R]: ...
    @overload
    async def enqueue(self, f: str, /, *args: Any, **kwargs: Any) -> Job[Any]: ...
    async def enqueue(self, f: _Func, /, *args: Any, **kwargs: Any) -> Job:
        """As `Queue.enqueue`."""
        sent: Job = await self._call(f, args, kwargs)
        return sent

    def options(self, **options: Unpack[CallOptions]) -> Enqueuer[Coro[Job]]:
        """As `Queue.options`; what it enqueues is to be awaited."""
        return Enqueuer(self, self._defaults, options)

    @overload
    async def enqueue_at(self, when: datetime, f: Callable[..., Coro[R]], /, *args: Any, **kwargs: Any) -> Job[R]: ...
    @overload
    async def enqueue_at(self, when: datetime, f: Callable[..., R], /, *args: Any, **kwargs: Any) -> Job[R]: ...
    @overload
    async def enqueue_at(self, when: datetime, f: str, /, *args: Any, **kwargs: Any) -> Job[Any]: ...
    async def enqueue_at(self, when: datetime, f: _Func, /, *args: Any, **kwargs: Any) -> Job:
        """As `Queue.enqueue_at`."""
        return await self.enqueue(f, *args, **timed("enqueue_at", when, kwargs))

    @overload
    async def enqueue_in(
        self, delta: timedelta | float | str, f: Callable[..., Coro[R]], /, *args: Any, **kwargs: Any
    ) -> Job[R]: ...
    @overload
    async def enqueue_in(self, delta: timedelta | float | str, f: Callable[..., R], /, *args: Any, **kwargs: Any) -> Job[R]: ...
    @overload
    async def enqueue_in(self, delta: timedelta | float | str, f: str, /, *args: Any, **kwargs: Any) -> Job[Any]: ...
    async def enqueue_in(self, delta: timedelta | float | str, f: _Func, /, *args: Any, **kwargs: Any) -> Job:
        """As `Queue.enqueue_in`."""
        return await self.enqueue(f, *args, **timed("enqueue_in", delta, kwargs))

    async def enqueue_call(
        self,
        func: _Func,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | str | None = None,
        **options: Unpack[CallOptions],
    ) -> Job:
        """As `Queue.enqueue_call`."""
        sent: Job = await self._call_apart(func, args, kwargs, timeout, options)
        return sent

    async def enqueue_many(
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
        """As `Queue.enqueue_many`. Encoding is the loop's work, a few milliseconds per chunk."""
        options = EnqueueOptions(
            max_queue_length=max_queue_length,
            durability=durability,
            replicas=replicas,
            replicas_timeout=replicas_timeout,
            on_commit=on_commit,
        )
        return await self._run(self._many(job_datas, spread, options))

    async def pause(self, duration: float | str | timedelta | None = None, *, reason: str = "", by: str = "") -> None:
        """As `Queue.pause`."""
        time, told = pause_terms(duration, reason, by)
        await self._run(_only(self._store()[0].pause_call(self.name, time, **told)))

    async def resume(self) -> bool:
        """As `Queue.resume`."""
        return await self._run(_only(self._store()[0].unpause_call(self.name))) is not None

    async def set_limit(self, limit: int | None) -> None:
        """As `Queue.set_limit`."""
        await self._set_gate(limit_gate(limit))

    async def set_rate(self, rate: str | None, burst: int | None = None) -> None:
        """As `Queue.set_rate`."""
        await self._set_gate(rate_gate(rate, burst))

    async def set_max_wait(self, max_wait: float | str | timedelta | None) -> None:
        """As `Queue.set_max_wait`."""
        await self._set_gate(max_wait_gate(max_wait))

    async def set_max_length(self, length: int | None) -> None:
        """As `Queue.set_max_length`."""
        await self._set_gate(max_length_gate(length))

    async def set_timeout(self, timeout: float | str | timedelta | None) -> None:
        """As `Queue.set_timeout`."""
        await self._set_gate(timeout_gate(timeout))

    async def empty(self, *, purge: bool = False) -> int:
        """As `Queue.empty`."""
        deleted, _, _ = await self._run(self._store()[0].empty_steps(self.name, purge=purge))
        return deleted

    # -- reading

    async def count(self) -> int:
        """As `Queue.count`, which is a property."""
        return await self._run(self._reads().count_steps(self.name))

    async def stats(self) -> QueueStats:
        """As `Queue.stats`."""
        return await self._run(self._reads().stats_steps(self.name))

    async def is_empty(self) -> bool:
        """As `Queue.is_empty`."""
        return await self.count() == 0

    async def get_job_ids(self, offset: int = 0, length: int = 100) -> list[str]:
        """As `Queue.get_job_ids`."""
        return await self._run(self._reads().waiting_steps(self.name, offset, length))

    async def get_jobs(self, offset: int = 0, length: int = 100) -> list[Job]:
        """As `Queue.get_jobs`. Methods of a job that read Redis raise, as of one that `fetch_job` returns."""
        ids = await self.get_job_ids(offset, length)
        rows = await self._run(self._reads().jobs_steps(ids))
        return [Job(job_id, row, _ELSEWHERE) for job_id, row in zip(ids, rows, strict=True) if row]

    @classmethod
    async def all(cls, connection: Redis | None = None) -> list[AsyncQueue]:
        """As `Queue.all`."""
        any_queue = cls(connection=connection)
        return [cls(name, connection) for name in await any_queue._run(any_queue._reads().queue_names_steps())]

    async def fetch_job(self, job_id: str) -> Job | None:
        """Return the job as `Queue.fetch_job` does, with `result` and the other fields as they were then. Its methods that read Redis raise."""
        (fields,) = await self._run(self._reads().jobs_steps([job_id]))
        job = Job(job_id, fields, _ELSEWHERE)
        return job if fields and job.origin == self.name else None

    async def get_status(self, job: Job | str) -> JobStatus:
        """Return the status of a job of any queue, given the job or its id. See `Job.get_status`."""
        job_id = job if isinstance(job, str) else job.id
        (status,) = await self._run(self._reads().statuses_steps([job_id]))
        if status is None:
            raise NoSuchJobError(f"no job {job_id!r}")
        return JobStatus(status)

    async def wait(self, job: Job | str, timeout: float | None = None, *, tree: bool = False) -> JobStatus:
        """Wait for a job of any queue, as `Job.wait` does; `fetch_job` then has its result."""
        job_id = job if isinstance(job, str) else job.id
        return await self._run(wait_steps(self._reads(), job_id, timeout, tree))

    # -- jobs of any queue

    async def cancel(self, job: Job | str) -> str:
        """Cancel a job of any queue, given the job or its id. See `Job.cancel`."""
        return await self._call_off(job, "canceled")

    async def stop(self, job: Job | str) -> str:
        """Stop a job of any queue, given the job or its id. See `Job.stop`."""
        return await self._call_off(job, "stopped")

    async def _call_off(self, job: Job | str, done: str) -> str:
        job_id = job if isinstance(job, str) else job.id
        calls = self._store()[0]
        answer = await self._run(_only(calls.cancel_call(job_id) if done == "canceled" else calls.stop_call(job_id)))
        check_called_off(job_id, answer, done)
        return answer

    async def _set_gate(self, values: Mapping[str, str | int | None]) -> None:
        await self._run(_only(self._store()[0].gate_call(self.name, values)))

    async def _run(self, steps: Steps[T]) -> T:
        try:
            return await run_awaited(steps, self.connection)
        except StoreUnavailable as error:
            repeats(error, self._run)
            raise

    def _by_template(
        self, f: Func, args: tuple[Any, ...], kwargs: dict[str, Any], given: Given | None, check: Check | None = None
    ) -> Any:
        if self._connection is None and _get_running_loop() is None:
            return None  # the loop on which this will be awaited, and its connection, are not known yet
        return super()._by_template(f, args, kwargs, given, check)

    async def _quickly(self, template: Template, connection: Redis, data: bytes, stored: bytes, own: Own | None) -> Job:
        nonce = new_id()
        if connection is not self.connection:  # this is awaited on another loop than it was called on
            return await self._run(self._anew(template, nonce.decode(), data, own))
        try:
            at = template.command.accepted(await template.command.send_awaited(nonce, stored, own))
        except (RedisError, OSError) as error:
            steps = self._anew(template, nonce.decode(), data, own, error)
        else:
            if type(at) is str:
                return template.job(nonce.decode(), data, own, at, _ELSEWHERE)
            return self._accepted(template, nonce.decode(), data, own, at, _ELSEWHERE)
        return await self._run(steps)

    def _store(self) -> tuple[QueueCalls, Any]:
        return async_calls_of(self.connection), _ELSEWHERE

    def _reads(self) -> Inspector:
        return async_reads_of(self.connection)

    def _later(self) -> Queue | None:
        # a held call is sent when its holder calls `send()`, maybe without an event loop
        return Queue(self.name) if self._connection is None else None


def _only(call: Call[T]) -> Steps[T]:
    """Return the steps of an operation that is one call."""
    result: T = yield call
    return result
