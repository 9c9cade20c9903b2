"""`Queue.options(...)`: options separate from the task's arguments, checked by type checkers, for any number of calls."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from fusion.enqueue.build import JobData
from fusion.enqueue.call import QueueDefaults, Terms, called_with, check_arguments, options_of, prepared, timed
from fusion.enqueue.template import Check, Given, for_calls
from fusion.settings import Settings, get_settings

if TYPE_CHECKING:
    from typing import TypeAlias, Unpack

    from fusion.enqueue.typed import CallOptions
    from fusion.job import Job

    OfQueue: TypeAlias = "Enqueuer[Job[Any]]"
    #: What it enqueues is awaited for the job.
    OfAsyncQueue: TypeAlias = "Enqueuer[Coro[Job[Any]]]"

P = ParamSpec("P")
R = TypeVar("R")
#: What a call of an `async def` returns. Not that of `decorators`, which leads back here.
Coro = Coroutine[Any, Any, R]
Sent = TypeVar("Sent")
Sent_co = TypeVar("Sent_co", covariant=True)


class Sends(Protocol[Sent_co]):
    """A queue, as this module uses it."""

    def _by_template(
        self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Given | None, check: Check | None = None
    ) -> Sent_co | None: ...

    def _generally(self, f: Any, given: Given | None, settings: Settings, built: tuple[JobData, Terms]) -> Sent_co: ...


class Enqueuer(Generic[Sent]):
    """A queue with options for the jobs enqueued through it: `Queue("sms").options(priority="high", ttl="5m")`.

    It never changes, so it can be kept and shared. All arguments after the function are the function's own, whatever their names. Enqueueing
    returns a Job; with an AsyncQueue it must be awaited. Errors are those of `Queue.enqueue`. UnknownOption is also raised for an argument
    that the function does not take.
    """

    __slots__ = ("_given", "_given_now", "_options", "_own", "_queue")

    def __init__(self, queue: Sends[Sent], own: QueueDefaults, given: Mapping[str, Any]) -> None:
        self._queue, self._own, self._given = queue, own, given
        self._options = options_of(given)
        self._given_now = for_calls(None, given)

    def __repr__(self) -> str:
        return f"options({', '.join(f'{name}={value!r}' for name, value in self._given.items())})"

    def options(self, **options: Unpack[CallOptions]) -> Enqueuer[Sent]:
        """Return the same with more options, or with other values for those given. UnknownOption if there is no such option."""
        return Enqueuer(self._queue, self._own, {**self._given, **options})

    @overload
    def enqueue(self: OfQueue, f: Callable[P, Coro[R]], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    def enqueue(self: OfQueue, f: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    def enqueue(self: OfAsyncQueue, f: Callable[P, Coro[R]], /, *args: P.args, **kwargs: P.kwargs) -> Coro[Job[R]]: ...
    @overload
    def enqueue(self: OfAsyncQueue, f: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coro[Job[R]]: ...
    @overload
    def enqueue(self, f: str, /, *args: Any, **kwargs: Any) -> Sent: ...
    def enqueue(self, f: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a call of `f`, a function or its dotted path, with these arguments."""
        now = self._given_now()
        sent = self._queue._by_template(f, args, kwargs, now, check_arguments)
        if sent is None:
            check_arguments(f, kwargs)
            settings = get_settings()
            sent = self._queue._generally(f, now, settings, called_with(f, args, kwargs, self._options, self._own))
        return sent

    @overload
    def enqueue_at(self: OfQueue, when: datetime, f: Callable[P, Coro[R]], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    def enqueue_at(self: OfQueue, when: datetime, f: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    def enqueue_at(
        self: OfAsyncQueue, when: datetime, f: Callable[P, Coro[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coro[Job[R]]: ...
    @overload
    def enqueue_at(
        self: OfAsyncQueue, when: datetime, f: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coro[Job[R]]: ...
    @overload
    def enqueue_at(self, when: datetime, f: str, /, *args: Any, **kwargs: Any) -> Sent: ...
    def enqueue_at(self, when: datetime, f: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueue for a time, as `Queue.enqueue_at` does."""
        return self._timed("enqueue_at", when).enqueue(f, *args, **kwargs)

    @overload
    def enqueue_in(
        self: OfQueue, delta: timedelta | float | str, f: Callable[P, Coro[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[R]: ...
    @overload
    def enqueue_in(
        self: OfQueue, delta: timedelta | float | str, f: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[R]: ...
    @overload
    def enqueue_in(
        self: OfAsyncQueue, delta: timedelta | float | str, f: Callable[P, Coro[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coro[Job[R]]: ...
    @overload
    def enqueue_in(
        self: OfAsyncQueue, delta: timedelta | float | str, f: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coro[Job[R]]: ...
    @overload
    def enqueue_in(self, delta: timedelta | float | str, f: str, /, *args: Any, **kwargs: Any) -> Sent: ...
    def enqueue_in(self, delta: timedelta | float | str, f: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueue after a delay, as `Queue.enqueue_in` does."""
        return self._timed("enqueue_in", delta).enqueue(f, *args, **kwargs)

    @overload
    def prepare_data(self, f: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> JobData: ...
    @overload
    def prepare_data(self, f: str, /, *args: Any, **kwargs: Any) -> JobData: ...
    def prepare_data(self, f: Any, /, *args: Any, **kwargs: Any) -> JobData:
        """Check and encode a job for `Queue.enqueue_many`. OptionError if `durability`, `replicas` or `max_queue_length` are among the
        options: give those to `enqueue_many`."""
        check_arguments(f, kwargs)
        given = {"job_timeout": self._own.timeout, **self._given}
        return prepared(f, args, kwargs, None, given, self._own.serializer)

    def _timed(self, name: str, time: Any) -> Enqueuer[Sent]:
        return Enqueuer(self._queue, self._own, timed(name, time, self._given))
