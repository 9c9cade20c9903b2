"""`@job`: marks a function as a task and gives it `.delay()`. Lean, since task modules import it in every job's process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from fusion.kernel import defaults, gather
from fusion.kernel.importing import check_no_generator

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Unpack

    from fusion.chains import Signature
    from fusion.enqueue.typed import TaskOptions
    from fusion.job import Job

#: Options that hold for every call of the function, however it is enqueued. The others are those of `.delay()`.
OF_EVERY_CALL = frozenset(
    (
        *("concurrency_key", "max_concurrent", "rate", "on_conflict", "limit_duration", "fair_key"),
        *("unique_key", "unique", "unique_until", "unique_window", "on_duplicate", "max_delay"),
    )
)

P = ParamSpec("P")
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
#: What a call of an `async def` returns.
Coro = Coroutine[Any, Any, R]


class Task(Protocol, Generic[P, R_co]):
    """A function that can be called, or enqueued with the same arguments."""

    __fusion_job__: bool

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def delay(self: Task[P, Coro[R]], *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]: ...
    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a call with these arguments, with the options of `@job`."""
        ...

    @overload
    def s(self: Task[P, Coro[R]], *args: P.args, **kwargs: P.kwargs) -> Signature[R]: ...
    @overload
    def s(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R_co]: ...
    @overload
    def s(self: Task[Concatenate[Any, Q], Coro[R]], *args: Q.args, **kwargs: Q.kwargs) -> Signature[R]: ...
    @overload
    def s(self: Task[Concatenate[Any, Q], R], *args: Q.args, **kwargs: Q.kwargs) -> Signature[R]: ...
    def s(self, *args: Any, **kwargs: Any) -> Any:
        """Return a call with these arguments, for a chain or a batch. In a chain, the result of the call before comes first."""
        ...

    @overload
    def si(self: Task[P, Coro[R]], *args: P.args, **kwargs: P.kwargs) -> Signature[R]: ...
    @overload
    def si(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R_co]: ...
    def si(self, *args: Any, **kwargs: Any) -> Any:
        """Return the same call as an immutable one: in a chain it receives no result."""
        ...


class _Decorator:
    """`@job`. The module `fusion.job` has the same name: whichever of the two a program gets, it can be called and has `Job`."""

    if TYPE_CHECKING:
        Job: type[Job]

    @overload
    def __call__(
        self,
        queue: str = defaults.QUEUE,
        connection: Any = None,
        *,
        timeout: float | str | None = None,
        batch: int,
        batch_wait: float | str | timedelta = 0,
        **options: Unpack[TaskOptions],
    ) -> Callable[[Callable[[list[Any]], R]], Task[..., Any]]: ...
    @overload
    def __call__(
        self,
        queue: str = defaults.QUEUE,
        connection: Any = None,
        *,
        timeout: float | str | None = None,
        batch: None = None,
        **options: Unpack[TaskOptions],
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def __call__(
        self,
        queue: str = defaults.QUEUE,
        connection: Any = None,
        *,
        timeout: float | str | None = None,
        batch: int | None = None,
        batch_wait: float | str | timedelta = 0,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """Enqueue the function by `func.delay(*args, **kwargs)` on `queue`, with these options of `Queue.enqueue` as its defaults.

        Options that relate jobs to each other (`concurrency_key`, `max_concurrent`, `rate`, `on_conflict`, `limit_duration`, `fair_key`,
        `unique_key`, `unique`, `unique_until`, `unique_window`, `on_duplicate`, `max_delay`) hold for every call of the function object, by
        `Queue.enqueue` as well. A key may be a function that makes it from the call's arguments.

        `batch`: one call of the function receives up to this many adjacent jobs. It takes a list of them, and yields for each a pair of the
        job and its result or exception. The first of them waits `batch_wait` seconds for others. See docs/gathered.md. A `Batch` is something
        else: a group of jobs to wait for.

        `timeout` is RQ's name of job_timeout. Write the brackets, even when they are empty. The function itself is unchanged. Workers that
        have loaded its module can run a marked function without `--tasks`.
        """

        if callable(queue):
            raise TypeError("write @job() or @job('sms'), with brackets")
        if batch is None and batch_wait:
            raise TypeError(f"batch_wait={batch_wait!r}: say batch=, too: how many jobs go to one call at most")
        ties = {name: options.pop(name) for name in OF_EVERY_CALL & options.keys()}  # type: ignore[misc]

        def decorate(func: Callable[P, R]) -> Task[P, R]:
            if batch is not None:
                gather.mark(func, batch, batch_wait)
            check_no_generator(func, f"{func.__module__}.{getattr(func, '__qualname__', func)}")

            enqueues: Callable[[Any, Any], Job] | None = None

            def delay(*args: P.args, **kwargs: P.kwargs) -> Job:
                nonlocal enqueues
                if enqueues is None:
                    from fusion.queue import Queue

                    enqueues = Queue(queue, connection)._delayer(func, timeout, options)
                return enqueues(args, kwargs)

            task = cast(Any, func)
            task.__fusion_job__ = True
            if ties:
                task.__fusion_ties__ = ties

            def s(*args: Any, **kwargs: Any) -> Signature:
                made: Signature = import_module("fusion.chains").of_task(func, args, kwargs, queue, timeout, options)
                return made

            def si(*args: Any, **kwargs: Any) -> Signature:
                return s(*args, **kwargs).alone()

            task.delay, task.s, task.si = delay, s, si
            return cast("Task[P, R]", task)

        return decorate

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what pickle, copy and inspect look for
            raise AttributeError(name)
        return getattr(import_module("fusion.job"), name)

    def __reduce__(self) -> str:
        return "job"


job = _Decorator()
