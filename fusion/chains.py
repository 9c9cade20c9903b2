"""Signatures: calls that are made later; and chains of them, of which each is given what the one before returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fusion.enqueue.build import JobData
from fusion.enqueue.chunk import prepared
from fusion.enqueue.keywords import check_keywords
from fusion.exceptions import OptionError
from fusion.kernel import defaults
from fusion.queue import Queue, enqueue_together

if TYPE_CHECKING:
    from typing import Unpack

    from redis import Redis

    from fusion.enqueue.typed import JobOptions
    from fusion.job import Job

Func = str | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """A call of a function, its queue and its options: for chains, and for what is to follow a batch. Made by `signature`, and by `.s()` and
    `.si()` of functions marked with `@job`, whose queue and options it has."""

    func: Func
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Takes nothing from the one before it in a chain.
    immutable: bool = False

    def set(self, *, queue: str | None = None, **options: Unpack[JobOptions]) -> Signature:
        """The same call in another queue, or with these options of `Queue.enqueue` besides."""
        return replace(self, queue=queue if queue is not None else self.queue, options={**self.options, **options})

    def alone(self) -> Signature:
        """The same call; in a chain it is given nothing."""
        return replace(self, immutable=True)

    def prepare(self, **more: Any) -> JobData:
        """The call as `enqueue_many` takes it, checked and encoded."""
        return prepared(self.func, self.args, self.kwargs, None, {**self.options, **more})

    def enqueue(self, queue: str | Queue | None = None, connection: Redis | None = None) -> Job:
        """Enqueue the call by itself: to `queue`, if it has none of its own."""
        return _queue_of(self, queue, connection).enqueue_many([self.prepare()])[0]


def signature(func: Func, /, *args: Any, **kwargs: Any) -> Signature:
    """The call of a function, or of what a dotted path names, with these arguments; `.set(...)` gives it a queue and options. TypeError for keywords
    that the function does not take."""
    check_keywords(func, kwargs, delayed=True)
    return Signature(func, args, kwargs)


def of_task(
    func: Func, args: tuple[Any, ...], kwargs: Mapping[str, Any], queue: str, timeout: Any, options: Mapping[str, Any]
) -> Signature:
    """The signature of a function that `@job` marked with these."""
    own = dict(options) if timeout is None else {**options, "job_timeout": timeout}
    return replace(signature(func, *args, **kwargs), queue=queue, options=own)


def as_signature(value: Signature | Func) -> Signature:
    """A signature, or a function that is called without arguments."""
    return value if isinstance(value, Signature) else Signature(value)


class chain:
    """Calls one after another: `chain(fetch.s(url), parse.s(), store.s("db")).enqueue()`. Each begins when the one before it has finished, and is
    given what that returned, before its own arguments; one made by `.si()` is given nothing. If one fails for good, is canceled, stopped or
    deleted, those behind it fail."""

    def __init__(self, *steps: Signature | Func) -> None:
        if not steps:
            raise ValueError("a chain has one call at least")
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
        """Enqueue the calls, each in its own queue or else in `queue`, with these options besides their own; returns their jobs, in this order. All
        of them or none, whatever their queues. `on_commit`: as of `Queue.enqueue`."""
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
