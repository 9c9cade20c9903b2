"""Producers' side for asyncio: what `Queue` enqueues, without a thread that waits. Looking (`stats`) and changing jobs is `Queue`'s and `Job`'s."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from redis.asyncio import Redis

from fusion.enqueue.batch import Batch, QueueDefaults, called, called_apart, chunks, prepared, timed
from fusion.enqueue.build import JobData
from fusion.enqueue.enqueuer import Enqueuer
from fusion.enqueue.options import EnqueueOptions
from fusion.enqueue.terms import Terms, pause_terms, terms_of
from fusion.exceptions import QueueFull, StoreUnavailable
from fusion.job import Job
from fusion.kernel import defaults
from fusion.kernel.gates import limit_gate, max_length_gate, max_wait_gate, rate_gate, timeout_gate
from fusion.settings import get_settings
from fusion.store.client.async_connections import close_loops_client, loops_client
from fusion.store.client.errors import fusion_errors
from fusion.store.layout.keys import check_queue_name
from fusion.store.write.async_broker import async_broker_of

if TYPE_CHECKING:
    from typing import Unpack

    from fusion.enqueue.typed import CallOptions, JobOptions

_Func = str | Callable[..., Any]


class _Elsewhere:
    """In place of a job's connection: its methods would hold up the whole loop."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            "a job that an AsyncQueue returned has no connection, since its methods would block the event loop; "
            "look at it in a thread: await asyncio.to_thread(Job.fetch, job.id)"
        )


_ELSEWHERE: Any = _Elsewhere()


class AsyncQueue:
    """A queue to enqueue to from a coroutine: the same jobs, by the same options, errors and promises as `Queue`, one round trip each.

    Without a `connection` (of redis.asyncio, which stays the caller's) all AsyncQueues of an event loop share one, made from the settings.
    A returned Job tells what was accepted; its methods that ask Redis are not for coroutines. A task that is cancelled while it waits for
    the answer does not know whether the job was accepted: who must know prepares it and enqueues the same data again.
    """

    PRIORITY_HIGH = 2
    PRIORITY_MODERATE = 1
    PRIORITY_LOW = 0

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
                f"connection: {type(connection).__name__} is no client for asyncio; use redis.asyncio.Redis, or Queue"
            )
        self.name = check_queue_name(name)
        self._connection = connection
        self._defaults = QueueDefaults(default_timeout, serializer)

    def __repr__(self) -> str:
        return f"AsyncQueue({self.name!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connections that this event loop's queues share; a later call makes new ones. A connection that was given is left."""
        if self._connection is None:
            await close_loops_client()

    async def enqueue(self, f: _Func, /, *args: Any, **kwargs: Any) -> Job:
        """`Queue.enqueue`."""
        return await self._one(*called(f, args, kwargs, self._defaults))

    def options(self, **options: Unpack[CallOptions]) -> Enqueuer[Coroutine[Any, Any, Job]]:
        """`Queue.options`; what it enqueues is to be awaited."""
        return Enqueuer(self._one, self._defaults, options)

    async def enqueue_at(self, when: datetime, f: _Func, /, *args: Any, **kwargs: Any) -> Job:
        """`Queue.enqueue_at`."""
        return await self.enqueue(f, *args, **timed("enqueue_at", when, kwargs))

    async def enqueue_in(self, delta: timedelta | float | str, f: _Func, /, *args: Any, **kwargs: Any) -> Job:
        """`Queue.enqueue_in`."""
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
        """`Queue.enqueue_call`."""
        return await self._one(*called_apart(func, args, kwargs, timeout, options, self._defaults))

    @staticmethod
    def prepare_data(
        func: _Func,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | str | None = None,
        serializer: str | None = None,
        **options: Unpack[JobOptions],
    ) -> JobData:
        """`Queue.prepare_data`; either kind of queue takes it."""
        return prepared(func, args, kwargs, timeout, options, serializer)

    async def enqueue_many(
        self,
        job_datas: Iterable[JobData],
        *,
        spread: float | str | timedelta | None = None,
        max_queue_length: int | None = None,
        durability: str | None = None,
        replicas: int | None = None,
        replicas_timeout: float | str | None = None,
    ) -> list[Job]:
        """`Queue.enqueue_many`. Encoding is the loop's work, a few milliseconds per chunk."""
        options = EnqueueOptions(
            max_queue_length=max_queue_length, durability=durability, replicas=replicas, replicas_timeout=replicas_timeout
        )
        return await self._all([], chunks(self.name, job_datas, terms_of(options, get_settings()), spread))

    async def pause(self, duration: float | str | timedelta | None = None, *, reason: str = "", by: str = "") -> None:
        """`Queue.pause`."""
        time, told = pause_terms(duration, reason, by)
        connection = self._connection if self._connection is not None else loops_client()
        with fusion_errors(connection):
            await async_broker_of(connection, get_settings()).pause(self.name, time, **told)

    async def resume(self) -> bool:
        """`Queue.resume`."""
        connection = self._connection if self._connection is not None else loops_client()
        with fusion_errors(connection):
            return await async_broker_of(connection, get_settings()).unpause(self.name) is not None

    async def set_limit(self, limit: int | None) -> None:
        """`Queue.set_limit`."""
        await self._set_gate(limit_gate(limit))

    async def set_rate(self, rate: str | None, burst: int | None = None) -> None:
        """`Queue.set_rate`."""
        await self._set_gate(rate_gate(rate, burst))

    async def set_max_wait(self, max_wait: float | str | timedelta | None) -> None:
        """`Queue.set_max_wait`."""
        await self._set_gate(max_wait_gate(max_wait))

    async def set_max_length(self, length: int | None) -> None:
        """`Queue.set_max_length`."""
        await self._set_gate(max_length_gate(length))

    async def set_timeout(self, timeout: float | str | timedelta | None) -> None:
        """`Queue.set_timeout`."""
        await self._set_gate(timeout_gate(timeout))

    async def _set_gate(self, values: Mapping[str, str | int | None]) -> None:
        connection = self._connection if self._connection is not None else loops_client()
        with fusion_errors(connection):
            await async_broker_of(connection, get_settings()).set_gate(self.name, values)

    async def _one(self, data: JobData, terms: Terms) -> Job:
        return await self._accept_one(Batch.of(self.name, [data], terms))

    async def _accept_one(self, batch: Batch) -> Job:
        try:
            return (await self._accept(batch))[0]
        except StoreUnavailable as error:
            batch.failed(error, lambda: self._accept_one(batch))
            raise

    async def _all(self, done: list[Job], batches: Iterable[Batch]) -> list[Job]:
        left = iter(batches)
        for batch in left:
            try:
                done += await self._accept(batch)
            except StoreUnavailable as error:
                batch.failed(error, partial(self._go_on, done, batch, left))
                raise
            except QueueFull as error:
                error.accepted = tuple(done)
                raise
        return done

    async def _go_on(self, done: list[Job], batch: Batch, left: Iterator[Batch]) -> list[Job]:
        return await self._all([*done], chain([batch], left))

    async def _accept(self, batch: Batch) -> list[Job]:
        connection = self._connection if self._connection is not None else loops_client()
        with fusion_errors(connection):
            broker, terms = async_broker_of(connection, get_settings()), batch.terms
            at = await broker.enqueue(batch.queue, batch.jobs, terms.replicas, terms.room)
        return batch.accepted(at, _ELSEWHERE)
