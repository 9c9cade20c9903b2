"""Signatures, which are calls to make later, and chains of them: each call receives the result of the one before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic

from fusion.enqueue.build import JobData
from fusion.enqueue.call import check_keywords, prepared
from fusion.exceptions import OptionError
from fusion.job import R
from fusion.kernel import defaults
from fusion.queue import Queue, enqueue_together

if TYPE_CHECKING:
    from typing import Unpack

    from redis import Redis

    from fusion.enqueue.typed import JobOptions
    from fusion.job import Job

Func = str | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Signature(Generic[R]):
    """A call of a function with its queue and options, for chains and for the callbacks of a batch. `signature` makes one. So do `.s()` and
    `.si()` of functions marked with `@job`, with the function's queue and options."""

    func: Func
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    #: If true, it receives no result from the call before it in a chain.
    immutable: bool = False

    def set(self, *, queue: str | None = None, **options: Unpack[JobOptions]) -> Signature[R]:
        """Return the same call for another queue, or with these further options of `Queue.enqueue`."""
        return replace(self, queue=queue if queue is not None else self.queue, options={**self.options, **options})

    def alone(self) -> Signature[R]:
        """Return the same call as an immutable one: in a chain it receives no result."""
        return replace(self, immutable=True)

    def prepare(self, **more: Any) -> JobData:
        """Check and encode the call; returns it as `enqueue_many` takes it."""
        return prepared(self.func, self.args, self.kwargs, None, {**self.options, **more})

    def enqueue(self, queue: str | Queue | None = None, connection: Redis | None = None) -> Job[R]:
        """Enqueue this call alone; to `queue` if it has no queue of its own."""
        return _queue_of(self, queue, connection).enqueue_many([self.prepare()])[0]


def signature(func: Func, /, *args: Any, **kwargs: Any) -> Signature:
    """Return the call of a function, or of a dotted path, with these arguments; `.set(...)` gives it a queue and options. TypeError for
    keywords that the function does not take."""
    check_keywords(func, kwargs, delayed=True)
    return Signature(func, args, kwargs)


def of_task(
    func: Func, args: tuple[Any, ...], kwargs: Mapping[str, Any], queue: str, timeout: Any, options: Mapping[str, Any]
) -> Signature:
    """Return the signature of a function that `@job` marked with these options."""
    own = dict(options) if timeout is None else {**options, "job_timeout": timeout}
    return replace(signature(func, *args, **kwargs), queue=queue, options=own)


def as_signature(value: Signature | Func) -> Signature:
    """Return a signature as it is, or the signature of a function that is called without arguments."""
    return value if isinstance(value, Signature) else Signature(value)


class chain:
    """Calls one after another: `chain(fetch.s(url), parse.s(), store.s("db")).enqueue()`. Each starts when the one before it has finished,
    and receives that result before its own arguments. A call made by `.si()` receives none. If a call fails for good, is canceled, stopped or
    deleted, the calls after it fail."""

    def __init__(self, *steps: Signature | Func) -> None:
        if not steps:
            raise ValueError("a chain needs at least one call")
        self.steps = tuple(map(as_signature, steps))

    def __repr__(self) -> str:
        return f"chain({', '.join(str(getattr(step.func, '__qualname__', step.func)) for step in self.steps)})"

    def enqueue(
        self,
        queue: str | Queue | None = None,
        connection: Redis | None = None,
        *,
        on_commit: bool | None = None,
        **options: Unpack[JobOptions],
    ) -> list[Job]:
        """Enqueue the calls, each in its own queue or else in `queue`, with these options besides their own. Returns their jobs, in this
        order. Either all are enqueued or none, whatever their queues. `on_commit`: as for `Queue.enqueue`."""
        datas: list[JobData] = []
        for step in self.steps:
            if datas and "depends_on" in step.options:
                raise OptionError("depends_on", "a call of a chain waits for the one before it; give it to the first")
            behind: dict[str, Any] = {"depends_on": datas[-1]} if datas else {}
            data = step.prepare(**{**options, **step.options, **behind})
            datas.append(_taking(data) if datas and not step.immutable else data)
        queues = [_queue_of(step, queue, connection) for step in self.steps]
        return enqueue_together(zip(queues, datas, strict=True), on_commit)


def _taking(data: JobData) -> JobData:
    fields = {**data.new.fields, "takes": 1, "ties": data.new.fields["ties"] + "g"}
    return replace(data, new=replace(data.new, fields=fields))


def _queue_of(step: Signature, queue: str | Queue | None, connection: Any) -> Queue:
    if step.queue is None and isinstance(queue, Queue):
        return queue
    name = step.queue or (queue.name if isinstance(queue, Queue) else queue) or defaults.QUEUE
    return Queue(name, queue.connection if isinstance(queue, Queue) and connection is None else connection)
