"""Shared by the queues for threads and for asyncio: from a call to what is sent, and from the reply to the returned jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from fusion.enqueue.build import JobData, build, sealed
from fusion.enqueue.graph import Graph
from fusion.enqueue.keywords import check_keywords, options_of, split_options
from fusion.enqueue.kinds import seconds
from fusion.enqueue.options import NONE, OF_CALLS, EnqueueOptions, Func
from fusion.enqueue.terms import Terms, terms_of
from fusion.exceptions import OptionError, StoreUnavailable
from fusion.job import Job
from fusion.kernel import defaults
from fusion.settings import get_settings
from fusion.store.layout.records import Met, NewJob
from fusion.store.scripting.host import Steps
from fusion.store.write.queue_calls import in_part, waits

_OF_CALLS = frozenset(OF_CALLS)


@dataclass(slots=True)
class Chunk:
    """Jobs that go to one queue in one call, with the terms of the call."""

    queue: str
    jobs: list[NewJob]
    terms: Terms

    @classmethod
    def of(cls, queue: str, datas: Iterable[JobData], terms: Terms) -> Chunk:
        """Sign the jobs for this queue. ValueError if an id occurs twice."""
        jobs = sealed(queue, [data.new for data in datas], get_settings())
        if len(jobs) > 1 and len({job.id for job in jobs}) < len(jobs):
            raise ValueError("the same job_id twice in one enqueue_many; ids are unique")
        return cls(queue, jobs, terms)

    def accepted(self, at: str, connection: Any) -> list[Job]:
        """Return the jobs as they were accepted at that time, without reading Redis again."""
        common = {"origin": self.queue, "original_queue": self.queue, "created_at": at, "enqueued_at": at, "status": "queued"}
        found = []
        part = in_part(at)
        for new in self.jobs:
            fields = {**new.fields, **common, "priority": new.priority}
            fields.pop("func", None)  # of a pickle, whose meta stock RQ reads
            if (new.due is not None or new.delay is not None) and waits(new, at):
                fields["status"] = "scheduled"
            if part is not None:
                if new.id in part.deferred:
                    fields["status"] = "deferred"
                if new.id in part.discarded:
                    fields |= {"status": "canceled", "reason": "discarded"}
            found.append(Job.of(new.id, fields, connection))
        return found if part is None else self._duplicates(found, part.met)

    def accepted_in(self, order: Mapping[str, int], at: str, connection: Any) -> list[Job]:
        """Return the jobs as they were accepted at that time, in this order of their ids."""
        pairs = zip(self.jobs, self.accepted(at, connection), strict=True)
        return [job for _, job in sorted(pairs, key=lambda pair: order.get(pair[0].id, 0))]

    def _duplicates(self, jobs: list[Job], met: Mapping[str, Met]) -> list[Job]:
        """Return the jobs. A job that was not enqueued, as another has its unique key, is replaced by that other job."""
        own = {job.id: job for job in jobs}
        found = []
        for job in jobs:
            if (others := met.get(job.id)) is None:
                found.append(job)
                continue
            if others.skipped:
                first = own.get(others.other)
                fields: dict[str, Any] = dict(others.fields) if first is None or others.fields else dict(first._fields)
                job = Job.of(others.other, fields, job.connection)
            else:
                job._fields["status"] = others.status
            job.duplicate_of = others.other
            found.append(job)
        return found

    def failed(self, error: StoreUnavailable, again: Callable[[], Steps[Any]]) -> None:
        """Store in the error which jobs it concerns, and the steps that repeat the call."""
        failed_together([self], error, again)


def failed_together(chunks: Sequence[Chunk], error: StoreUnavailable, again: Callable[[], Steps[Any]]) -> None:
    """Do what `Chunk.failed` does, for jobs that are accepted together."""
    error.job_ids = tuple(job.id for chunk in chunks for job in chunk.jobs)
    error.steps = again


def graph_of(chunks: Sequence[Chunk]) -> Graph:
    """Return a graph of the jobs of chunks, for one queue or several, to be accepted together."""
    jobs = [job for chunk in chunks for job in chunk.jobs]
    queues = {job.id: chunk.queue for chunk in chunks for job in chunk.jobs} if len(chunks) > 1 else None
    room = chunks[0].terms.room
    return Graph.of(jobs, queues, None if room is None else room.length)


@dataclass(frozen=True, slots=True)
class QueueDefaults:
    """Options of a queue for jobs that don't set them: `Queue(default_timeout=, serializer=)`."""

    timeout: float | str | None = None
    serializer: str | None = None

    def __post_init__(self) -> None:
        if self.serializer not in (None, "json", "pickle"):
            raise ValueError(f"serializer={self.serializer!r}: use {SERIALIZERS}")


SERIALIZERS = (
    "'json' or 'pickle', or none for the setting serializer (FUSION_SERIALIZER); workers read both, each job says which it is"
)


def called(f: Func, args: tuple[Any, ...], kwargs: dict[str, Any], own: QueueDefaults) -> tuple[JobData, Terms]:
    """Build the job of `enqueue(f, *args, **kwargs)`."""
    options, rest = split_options(kwargs)
    if rest:
        if "args" in rest or "kwargs" in rest:
            if args:
                raise ValueError("give the task's arguments either directly or by args= and kwargs=, not both")
            args, apart = tuple(rest.pop("args", None) or ()), rest.pop("kwargs", None) or {}
            check_keywords(f, rest)
            rest = {**apart, **rest}
        else:
            check_keywords(f, rest)
    return called_with(f, args, rest, options, own)


def called_apart(
    func: Func,
    args: Iterable[Any] | None,
    kwargs: Mapping[str, Any] | None,
    timeout: float | str | None,
    options: Mapping[str, Any],
    own: QueueDefaults,
) -> tuple[JobData, Terms]:
    """Build the job of `enqueue_call(func, args, kwargs, timeout=timeout, **options)`."""
    return called_with(func, tuple(args or ()), kwargs or {}, _options(timeout, options), own)


def delayed(
    func: Func, args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | str | None, options: Mapping[str, Any]
) -> tuple[JobData, Terms]:
    """Build the job of `func.delay(*args, **kwargs)`, of a function marked by `@job(..., timeout=timeout, **options)`."""
    check_keywords(func, kwargs, delayed=True)
    return called_apart(func, args, kwargs, timeout, options, QueueDefaults())


def prepared(
    func: Func,
    args: Iterable[Any] | None,
    kwargs: Mapping[str, Any] | None,
    timeout: float | str | None,
    options: Mapping[str, Any],
    serializer: str | None = None,
) -> JobData:
    """Build the job of `prepare_data(func, args, kwargs, timeout=timeout, serializer=serializer, **options)`."""
    known = _options(timeout, options)
    if not _OF_CALLS.isdisjoint(options):
        for name in OF_CALLS:
            if options.get(name) is not None:
                raise OptionError("", f"{name}= belongs to the call that sends the jobs; give it to enqueue_many")
    return build(func, tuple(args or ()), kwargs or {}, known, get_settings(), QueueDefaults(serializer=serializer).serializer)


def timed(name: str, time: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `enqueue` that do what `enqueue_at` and `enqueue_in` do."""
    if time is None:
        raise TypeError(f"{name}() needs a time, got None; to run it at once use enqueue()")
    if "enqueue_at" in kwargs or "enqueue_in" in kwargs:
        raise ValueError(f"{name}() has its time already, as its first argument; remove enqueue_at= and enqueue_in=")
    return {**kwargs, name: time}


def chunks(
    queue: str, job_datas: Iterable[JobData], terms: Terms, spread: float | str | timedelta | None = None
) -> Iterator[Chunk]:
    """Yield the calls that `enqueue_many` makes: at most 150 plain jobs or 1 MiB each, a larger job alone. If the number of jobs is known,
    the first call checks that there is room for all. `spread`: see `spread_over`."""
    if spread is not None:
        job_datas = spread_over(job_datas, spread)
    known = job_datas if isinstance(job_datas, (list, tuple)) else ()
    chunk: list[JobData] = []
    size = load = 0
    for data in job_datas:
        weighs = weight(data.new)
        if chunk and (size + data.size > defaults.ENQUEUE_CHUNK_BYTES or load + weighs > defaults.ENQUEUE_CHUNK):
            to_come = sum(map(_is_for_now, known[len(chunk) :])) if known else 0
            yield Chunk.of(queue, chunk, terms.with_more(to_come))
            chunk, size, load, known = [], 0, 0, ()
        chunk.append(data)
        size += data.size
        load += weighs
    if chunk:
        yield Chunk.of(queue, chunk, terms)


def weight(new: NewJob) -> int:
    """Return about how many plain jobs this one costs the server that accepts it, at most 5. Jobs that wait for each other, and go in one
    call, are at most 30."""
    fields = new.fields
    if "ties" not in fields and "fair_key" not in fields:
        return 1
    found = 1 + ("batch" in fields) + ("unique_key" in fields) + ("fair_key" in fields)
    return min(5, found + 3 * ("concurrency_key" in fields) + 3 * ("parents" in fields))


def _is_for_now(data: JobData) -> bool:
    """Return True if the job goes to its queue now; one that waits for a time is not in the queue yet."""
    return data.new.due is None and not data.new.delay


def spread_over(job_datas: Iterable[JobData], spread: float | str | timedelta) -> list[JobData]:
    """Return the jobs in their order, due at even distances over `spread`: the first at once, each other by one distance later than the one
    before. OptionError for a duration not over 0, and for a job that has a time of its own."""
    whole, datas = seconds("spread", spread), list(job_datas)
    for data in datas:
        if data.new.due is not None or data.new.delay is not None:
            rule = f"job {data.new.id} has a time of its own (enqueue_at or enqueue_in); give one of the two"
            raise OptionError("spread", rule, spread)
    return [replace(data, new=replace(data.new, delay=whole * i / len(datas))) for i, data in enumerate(datas)]


def _options(timeout: float | str | None, options: Mapping[str, Any]) -> EnqueueOptions:
    if timeout is None and not options:
        return NONE
    return options_of({"job_timeout": timeout, **options})


def called_with(
    func: Func, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: EnqueueOptions, own: QueueDefaults
) -> tuple[JobData, Terms]:
    """Return the encoded call and its terms; the queue's own defaults replace options that are not given."""
    if own.timeout is not None and options.job_timeout is None:
        options = options.over(EnqueueOptions(job_timeout=own.timeout))
    settings = get_settings()
    return build(func, args, kwargs, options, settings, own.serializer), terms_of(options, settings)
