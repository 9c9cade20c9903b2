"""Enqueues, written once for Queue and AsyncQueue: generators that yield their calls (`fusion.store.scripting.host`).

Jobs go to Redis in chunks: those of one queue in one call, or of several calls if they wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import chain
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from fusion import middleware
from fusion.absent import absent
from fusion.enqueue.build import JobData, sealed
from fusion.enqueue.call import (
    PLAIN,
    QueueDefaults,
    Terms,
    called,
    called_apart,
    check_keywords,
    delayed,
    prepared,
    terms_of,
)
from fusion.enqueue.graph import Graph, in_order, is_graph, write
from fusion.enqueue.hooked import Enqueueing, Parts, Writer
from fusion.enqueue.kinds import seconds
from fusion.enqueue.options import EnqueueOptions, Func
from fusion.enqueue.template import Check, Given, Template, for_calls, given_by, parted, templates_of
from fusion.exceptions import OptionError, QueueFull, StoreUnavailable
from fusion.job import Job
from fusion.kernel import defaults
from fusion.middleware import ProducerMiddleware, producers
from fusion.settings import Settings, get_settings
from fusion.store.layout.records import Met, NewJob
from fusion.store.scripting.host import Failed, Steps
from fusion.store.write.enqueue_command import Own
from fusion.store.write.queue_calls import AcceptedInPart, EnqueueAhead, QueueCalls, waits

if TYPE_CHECKING:
    from typing import Unpack

    from fusion.enqueue.typed import JobOptions

T = TypeVar("T")


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
        part = at if type(at) is AcceptedInPart else None
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


class QueueSteps:
    """The part of a queue that is the same for threads and coroutines. Each operation is made as steps, which `_run` runs."""

    PRIORITY_HIGH = 2
    PRIORITY_MODERATE = 1
    PRIORITY_LOW = 0

    name: str
    _defaults: QueueDefaults
    #: `text` of the defaults.
    _own: str

    if not TYPE_CHECKING:  # a type checker would take them for members
        locals().update(
            absent(
                "queue",
                "jobs job_ids failed_job_registry scheduled_job_registry started_job_registry finished_job_registry "
                "deferred_job_registry canceled_job_registry enqueue_job create_job schedule_job get_job_position remove "
                "delete is_async key",
            )
        )

    @property
    def connection(self) -> Any:
        """The client that the calls are made by."""
        raise NotImplementedError

    @staticmethod
    def prepare_data(
        func: str | Callable[..., Any],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | str | None = None,
        serializer: str | None = None,
        **options: Unpack[JobOptions],
    ) -> JobData:
        """Check and encode a job for `enqueue_many`. It is one job, however often it is enqueued. `enqueue_in` counts from its first enqueue.
        `serializer`: as for `Queue`, whose own is not used here."""
        return prepared(func, args, kwargs, timeout, options, serializer)

    # -- what each kind of queue has of its own

    def _run(self, steps: Steps[T]) -> Any:
        """Make the calls of these steps. Returns their result, or for a coroutine something to await that does."""
        raise NotImplementedError

    def _store(self) -> tuple[QueueCalls, Any]:
        """Return the calls of the connection, and the connection for the returned jobs."""
        raise NotImplementedError

    def _later(self) -> Writer | None:
        """Return the queue that sends a call which a middleware holds; None if this queue's calls can't be held."""
        raise NotImplementedError

    def _quickly(self, template: Template, connection: Any, data: bytes, stored: bytes, own: Own | None) -> Any:
        """Enqueue a job of this template of the connection, with these arguments in both forms, and what else is the call's own. Returns what
        `_run` does."""
        raise NotImplementedError

    # -- one call: by the template of its function and options, or the general way, after which there is one

    def _call(self, f: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Enqueue the call of `enqueue(f, *args, **kwargs)`."""
        given, rest = parted(kwargs)
        sent = self._by_template(f, args, rest, given, check_keywords)
        if sent is not None:
            return sent
        return self._generally(f, given, get_settings(), called(f, args, kwargs, self._defaults))

    def _call_apart(
        self,
        f: Func,
        args: Iterable[Any] | None,
        kwargs: Mapping[str, Any] | None,
        timeout: float | str | None,
        options: Mapping[str, Any],
    ) -> Any:
        """Enqueue the call of `enqueue_call(f, args, kwargs, timeout=timeout, **options)`."""
        given, args, kwargs = given_by(timeout, options), tuple(args or ()), dict(kwargs or {})
        sent = self._by_template(f, args, kwargs, given)
        if sent is not None:
            return sent
        built = called_apart
        return self._generally(f, given, get_settings(), built(f, args, kwargs, timeout, options, self._defaults))

    def _delayer(
        self, f: Func, timeout: float | str | None, options: Mapping[str, Any]
    ) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        """Return what enqueues a call of a function marked by `@job(timeout=timeout, **options)`, given its arguments."""
        given_now, check = for_calls(timeout, options), partial(check_keywords, delayed=True)

        def delay(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            given = given_now()
            sent = self._by_template(f, args, kwargs, given, check)
            if sent is not None:
                return sent
            return self._generally(f, given, get_settings(), delayed(f, args, kwargs, timeout, options))

        return delay

    def _by_template(
        self, f: Func, args: tuple[Any, ...], kwargs: dict[str, Any], given: Given | None, check: Check | None = None
    ) -> Any:
        """Enqueue a call by its template; `check` is for the names of its arguments. None if there is no template, or the call has to be made
        the general way."""
        if given is None or not (type(f) is FunctionType or type(f) is str):
            return None
        connection, (options, own) = self.connection, given
        template = templates_of(connection).get((self.name, self._own, f, options))
        encoded = None if template is None else template.encoded(f, args, kwargs, own, check)
        return None if template is None or encoded is None else self._quickly(template, connection, *encoded)

    def _generally(self, f: Func, given: Given | None, settings: Settings, built: tuple[JobData, Terms]) -> Any:
        """Enqueue a call the general way. `settings`: those by which it was built, as another thread may have changed them since."""
        return self._run(self._first(f, given, settings, *built))

    # -- steps

    def _first(self, f: Func, given: Given | None, settings: Settings, data: JobData, terms: Terms) -> Steps[Job]:
        """Enqueue one job, and keep a template for more like it."""
        job = yield from self._one(data, terms)
        if given is not None and (type(f) is FunctionType or type(f) is str):
            templates = templates_of(self.connection)
            if templates.settings is settings:
                templates.learn((self.name, self._own, f, given[0]), data, terms, self._store()[0])
        return job

    def _anew(self, template: Template, nonce: str, data: bytes, own: Own | None, error: Exception | None = None) -> Steps[Job]:
        """Enqueue a job of a template the general way. `error`: of its command; it is raised as if this call had failed."""
        chunk = Chunk(self.name, [template.new(nonce, data, own)], PLAIN)
        return (yield from self._accept_one(chunk, None if error is None else template.command.refusal(error)))

    def _accepted(self, template: Template, nonce: str, data: bytes, own: Own | None, at: str, connection: Any) -> Job:
        """Return a job of a template for whose acceptance there is more to tell than the time."""
        return Chunk(self.name, [template.new(nonce, data, own)], PLAIN).accepted(at, connection)[0]

    def _one(self, data: JobData, terms: Terms) -> Steps[Job]:
        """Enqueue one job."""
        settings = get_settings()
        if (settings.middleware or middleware.registered) and (found := hooks(settings)):
            job: Job = yield from self._hooked(found, [(self.name, [data])], terms, alone=True)
            return job
        return (yield from self._accept_one(Chunk(self.name, sealed(self.name, [data.new], settings), terms)))

    def _many(
        self, job_datas: Iterable[JobData], spread: float | str | timedelta | None, options: EnqueueOptions
    ) -> Steps[list[Job]]:
        """Enqueue many jobs of this queue."""
        settings = get_settings()
        terms = terms_of(options, settings)
        if found := hooks(settings):
            datas = list(job_datas) if spread is None else spread_over(job_datas, spread)
            jobs: list[Job] = yield from self._hooked(found, [(self.name, datas)], terms)
            return jobs
        return (yield from self._accept_many(job_datas, terms, spread))

    def _together(self, parts: Parts, terms: Terms) -> Steps[list[Job]]:
        """Enqueue jobs of several queues, all or none."""
        jobs: list[Job]
        if found := hooks(get_settings()):
            jobs = yield from self._hooked(found, parts, terms)
        else:
            jobs = yield from self._write(parts, terms, False)
        return jobs

    def _hooked(self, found: Sequence[ProducerMiddleware], parts: Parts, terms: Terms, *, alone: bool = False) -> Steps[Any]:
        """Enqueue these parts, with the hooks before and after."""
        call = Enqueueing(found, parts, terms, alone, self._later())
        call.before()
        if call.held is not None:
            return call.promised(self._store()[1])
        return (yield from call.run(lambda: self._write(call.parts, terms, alone)))

    def _write(self, parts: Parts, terms: Terms, alone: bool) -> Steps[Any]:
        """Write the jobs of a call after its hooks were called: its only job, or several for this queue or for others."""
        if alone:
            return (yield from self._accept_one(Chunk.of(self.name, parts[0][1], terms)))
        if len(parts) == 1:
            return (yield from self._accept_many(parts[0][1], terms))
        return (yield from self._accept_graph(self._chunks(parts, terms), {}))

    @staticmethod
    def _chunks(parts: Parts, terms: Terms) -> list[Chunk]:
        return [Chunk.of(queue, datas, terms) for queue, datas in parts]

    def _accept_one(self, chunk: Chunk, failed: Exception | None = None) -> Steps[Job]:
        """Accept the only job of a chunk. `failed`: the error of a call that was made for it already; it is raised as if it were this one's."""
        if "parents" in chunk.jobs[0].fields and Graph.is_needed(chunk.jobs):
            return (yield from self._accept_graph([chunk], {}))[0]
        calls, connection = self._store()
        terms = chunk.terms
        try:
            if failed is not None:
                yield Failed(failed)
            at = yield from calls.enqueue_steps(chunk.queue, chunk.jobs, "", terms.replicas, terms.room)
        except StoreUnavailable as error:
            chunk.failed(error, lambda: self._accept_one(chunk))
            raise
        return chunk.accepted(at, connection)[0]

    def _accept_many(
        self, job_datas: Iterable[JobData], terms: Terms, spread: float | str | timedelta | None = None
    ) -> Steps[list[Job]]:
        datas = job_datas if isinstance(job_datas, (list, tuple)) else None
        if datas is not None and is_graph(datas):
            datas = in_order(datas if spread is None else spread_over(datas, spread))
            if Graph.is_needed([data.new for data in datas]):
                order = {data.new.id: nth for nth, data in enumerate(job_datas)}
                return (yield from self._accept_graph([Chunk.of(self.name, datas, terms)], order))
            return (yield from self._accept_chunks([], chunks(self.name, datas, terms)))
        return (yield from self._accept_chunks([], chunks(self.name, job_datas, terms, spread)))

    def _accept_graph(self, chunks: Sequence[Chunk], order: Mapping[str, int], graph: Graph | None = None) -> Steps[list[Job]]:
        """Accept jobs that wait for each other, or a job with many parents, in several calls: all or none. `order`: of the ids of a chunk."""
        graph = graph or graph_of(chunks)
        calls, connection = self._store()
        try:
            at = yield from write(graph, chunks[0].queue, calls, chunks[0].terms.replicas)
        except StoreUnavailable as error:
            failed_together(chunks, error, lambda: self._accept_graph(chunks, order, graph))
            raise
        return [job for chunk in chunks for job in chunk.accepted_in(order, at, connection)]

    def _accept_chunks(self, done: list[Job], to_send: Iterable[Chunk]) -> Steps[list[Job]]:
        """Accept chunk after chunk; the jobs follow those that are `done`. While Redis is busy with one, the jobs of the one before are made,
        and the next is encoded."""
        calls, connection = self._store()
        ahead = _Ahead(calls, iter(to_send), done)
        ahead.encode()
        while ahead.next is not None:
            chunk, call = ahead.next
            call.meanwhile = ahead.meanwhile
            try:
                at = yield call
            except StoreUnavailable as error:
                chunk.failed(error, partial(self._go_on, done, [chunk, *ahead.encoded()], ahead.left))
                raise
            except QueueFull as error:
                error.accepted = tuple(done)
                raise
            if ahead.error is not None:  # the chunks before the one that can't be sent are accepted
                raise ahead.error
            ahead.jobs = partial(chunk.accepted, at, connection)
        return [*done, *ahead.jobs()]

    def _go_on(self, done: list[Job], rest: list[Chunk], left: Iterator[Chunk]) -> Steps[list[Job]]:
        return self._accept_chunks([*done], chain(rest, left))


@dataclass(slots=True)
class _Ahead:
    """The work done while Redis is busy with a chunk. `next`: the chunk after it, with its encoded call; `jobs`: makes those of the chunk before."""

    calls: QueueCalls
    left: Iterator[Chunk]
    done: list[Job]
    next: tuple[Chunk, EnqueueAhead] | None = None
    jobs: Callable[[], list[Job]] = list
    #: Why the next can't be encoded.
    error: Exception | None = None

    def encode(self) -> None:
        """Encode the next chunk."""
        self.next = None
        for chunk in self.left:
            terms = chunk.terms
            self.next = chunk, self.calls.enqueue_ahead(chunk.queue, chunk.jobs, terms.replicas, terms.room)
            return

    def encoded(self) -> list[Chunk]:
        """Return the chunk that is encoded and not sent."""
        return [] if self.next is None else [self.next[0]]

    def meanwhile(self) -> None:
        """Make the jobs of the chunk before, and encode the next."""
        self.done += self.jobs()
        try:
            self.encode()
        except Exception as error:
            self.error = error


def hooks(settings: Settings) -> Sequence[ProducerMiddleware]:
    """Return the hooks that see the enqueues of this process; mostly there are none."""
    return producers(settings.middleware) if settings.middleware or middleware.registered else ()


def repeats(error: StoreUnavailable, run: Callable[[Steps[Any]], Any]) -> None:
    """Have the error's `repeat()` run the steps that repeat the call."""
    if (steps := error.steps) is not None:
        error.repeat_with(lambda: run(steps()))
