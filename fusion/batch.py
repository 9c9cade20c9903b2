"""Batches: jobs that belong together, and what is to happen when all of them have ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from redis import Redis

from fusion.chains import Signature, as_signature
from fusion.enqueue.build import JobData
from fusion.enqueue.kinds import batch_id, one_line, seconds
from fusion.enqueue.ties import joining
from fusion.exceptions import BatchClosed, FusionError, OptionError, batch_refusal
from fusion.job import Job
from fusion.kernel import defaults
from fusion.kernel.nonces import new_nonce
from fusion.queue import Queue, enqueue_together
from fusion.status import JobStatus
from fusion.store.access import batch_inspector_of, broker_of
from fusion.store.client.connections import get_current_connection
from fusion.store.client.errors import repeatable
from fusion.store.read.batch_inspector import INNER, BatchInfo

#: Members that are read together.
_PAGE = 500


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A job of a batch and how it ended: `finished`, `failed`, `canceled`, `stopped`, `deleted`, or `open` if it has not. `result`: what it
    returned; None if it did not finish, and once its record is gone."""

    job_id: str
    status: str
    result: Any


class Batch:
    """Jobs that belong together::

        with Batch(name="invoices", queue="mail") as batch:
            for customer in customers:
                batch.enqueue(send_invoice, customer)
        batch.wait()

    It is over when it is closed and all its jobs have ended, however. A block that raises cancels it. Jobs of a batch can add further ones to it
    as long as they run, also once it is closed: `get_current_job().batch.enqueue(...)`.

    `on_complete` and `on_success`: functions, their paths, or signatures with arguments, queue and options, each enqueued once: when all its
    jobs have ended for the first time, and when all have finished, be it after a requeue. They find the batch by `get_current_job().batch`, and
    what its jobs returned in its `results()`, which are kept until both have run.

    `queue`: of jobs that name none. `open_for`: a batch that nobody closes is closed when so long no job was added, as its producer has died.
    `keep`: how long it is remembered once it is over. `parent`: a batch of which this one is a member, up to five deep. Times are seconds,
    texts like "5m", or timedeltas; OptionError for others. Making one talks to nobody; `open` does, or the `with`.
    """

    def __init__(
        self,
        name: str = "",
        *,
        queue: str | Queue = defaults.QUEUE,
        open_for: float | str | timedelta = "1h",
        keep: float | str | timedelta = "1d",
        on_complete: Signature | str | Callable[..., Any] | None = None,
        on_success: Signature | str | Callable[..., Any] | None = None,
        parent: Batch | str | None = None,
        id: str | None = None,
        connection: Redis | None = None,
    ) -> None:
        self.name = one_line("name", name)
        self.id = batch_id("id", id) if id is not None else new_nonce() + new_nonce()
        self.queue = queue if isinstance(queue, Queue) else Queue(queue, connection)
        self._connection = connection if connection is not None else self.queue._connection
        self._open_for, self._keep = seconds("open_for", open_for), seconds("keep", keep)
        self._nonce = ""
        #: Calls that a middleware holds; to be closed once they were sent.
        self._unsent, self._to_close = 0, False
        self._parent = None if parent is None else batch_id("parent", parent)
        self._callbacks = [self._callback("complete", on_complete), self._callback("success", on_success)]

    def _callback(self, when: str, call: Signature | str | Callable[..., Any] | None) -> tuple[Queue, JobData] | None:
        if call is None:
            return None
        step = as_signature(call)
        data = step.prepare()
        ties = data.new.fields.get("ties", "") + "bh"
        fields = {**data.new.fields, "batch": self.id, "batch_as": when, "ties": ties}
        queue = self.queue if step.queue is None else Queue(step.queue, self._connection)
        return queue, replace(data, new=replace(data.new, fields=fields))

    @classmethod
    def fetch(cls, id: str, connection: Redis | None = None) -> Batch:
        """The batch of this id; NoSuchBatchError if there is none."""
        found = cls(id=id, connection=connection)
        info = found.info()
        found.name, found._parent = info.name, info.parent
        return found

    @classmethod
    def _of(cls, id: str, queue: str) -> Batch:
        """One that is known to be there, without a look."""
        return cls(id=id, queue=queue)

    @property
    def connection(self) -> Redis:
        """The client that was given, else this process's own."""
        return self._connection if self._connection is not None else get_current_connection()

    def __repr__(self) -> str:
        return f"<Batch {self.id}{f' {self.name!r}' if self.name else ''}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # -- filling it

    def open(self) -> Self:
        """Make it known; jobs can be added from now on. BatchClosed or NoSuchBatchError if the parent takes no more, the latter also if this took
        longer than `open_for`; ValueError if it would be the sixth inside one another, or if a batch of this id is there. To open it again does
        nothing; and where a process died while it opened one, before what is to follow had come, another may open that of the same id and parent."""
        self._nonce = self._nonce or new_nonce()
        repeatable(self._open)
        callbacks = [callback for callback in self._callbacks if callback is not None]
        try:
            if callbacks:
                enqueue_together(sorted(callbacks, key=lambda callback: callback[0].name))
        except BatchClosed as error:
            raise self._is_there() if error.reason == "taken" else error from None
        return self

    def _is_there(self) -> ValueError:
        return ValueError(f"there is a batch {self.id!r} already; choose another id, or none")

    def _open(self) -> None:
        parent = self._parent or ""
        fields = {"name": self.name or None}
        for name, callback in zip(("on_complete", "on_success"), self._callbacks, strict=True):
            fields[name] = None if callback is None else callback[1].new.id
        by = joining(parent) or "" if parent else ""
        answer, _ = broker_of(self.connection).open_batch(
            self.id, self._nonce, self._open_for, self._keep, fields, parent=parent, by=by
        )
        if answer == "duplicate":
            raise self._is_there()
        if answer == "deep":
            raise ValueError(f"batch {parent} is the fifth inside one another; none can be deeper")
        if answer != "ok":
            raise batch_refusal(parent, answer)

    def close(self) -> None:
        """No more jobs will come, but those that its own add. Closed already is no error; NoSuchBatchError if it is gone. While a middleware holds
        some that were added here (until a transaction is committed, say) it stays open, and is closed when they have been sent."""
        self._to_close = self._unsent > 0
        if self._to_close:
            return
        if broker_of(self.connection).close_batch(self.id) != "ok":
            raise batch_refusal(self.id, "missing")

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:  # what the block raised is what is told
            with suppress(FusionError):
                self.cancel()

    def enqueue(self, f: str | Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """As `Queue.enqueue` of the batch's queue: the job is a member. BatchClosed if it takes no more."""
        job = self.queue.enqueue(f, *args, **kwargs, batch=self)
        self._note_held([job])
        return job

    def add(self, queue: str | Queue, job_datas: Iterable[JobData], *, on_commit: bool | None = None) -> list[Job]:
        """As `enqueue_many` of that queue: the jobs, made by `Queue.prepare_data`, are members. They come in chunks, of which each is accepted as a
        whole; BatchClosed if it takes no more."""
        target = queue if isinstance(queue, Queue) else Queue(queue, self._connection)
        jobs = target.enqueue_many(self._members(job_datas), on_commit=on_commit)
        self._note_held(jobs)
        return jobs

    def _note_held(self, jobs: Iterable[Job]) -> None:
        # Those that a middleware holds come when it sends them: till then the batch must stay open.
        for held in dict.fromkeys(job._held for job in jobs if job._held is not None):
            self._unsent += 1
            held.then(self._sent)

    def _sent(self) -> None:
        self._unsent -= 1
        if not self._unsent and self._to_close:
            self.close()

    def _members(self, job_datas: Iterable[JobData]) -> Iterator[JobData]:
        by = joining(self.id)
        for data in job_datas:
            if data.new.fields.get("batch", self.id) != self.id:
                raise OptionError("batch", f"job {data.new.id} is of another batch already")
            ties = data.new.fields.get("ties", "").replace("b", "") + "b"
            yield replace(data, new=replace(data.new, fields={**data.new.fields, "batch": self.id, "batch_by": by, "ties": ties}))

    # -- looking

    def info(self) -> BatchInfo:
        """How it stands now. NoSuchBatchError if it is gone."""
        found = batch_inspector_of(self.connection).info(self.id)
        if found is None:
            raise batch_refusal(self.id, "missing")
        return found

    @property
    def status(self) -> str:
        """`open`, `running`, `success`, `complete` (over, and not all jobs finished) or `canceled`."""
        return self.info().status

    def wait(self, timeout: float | None = None) -> BatchInfo:
        """Wait until it is over, and return how it stands. TimeoutError after `timeout` seconds. Looks at ever longer intervals, up to a
        fifth of a second."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.002
        while True:
            info = self.info()
            if info.ended_at is not None and info.open == 0:
                return info
            left = float("inf") if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"batch {self.id} is {info.status} after {timeout} s: {info.open} of {info.total} have not ended"
                )
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, 0.2)

    def results(self, offset: int = 0, limit: int | None = None) -> Iterator[BatchResult]:
        """Its jobs, from the `offset`th on and at most `limit`, in the order in which they were added, each with how it ended and what it
        returned; batches in it are left out. Read by page: five hundred at a time are in memory."""
        inspector, end = batch_inspector_of(self.connection), None if limit is None else offset + limit
        while end is None or offset < end:
            page = inspector.page(self.id, offset, _PAGE if end is None else min(_PAGE, end - offset))
            if not page:
                return
            offset += len(page)
            own = [(member, how) for member, how in page if not member.startswith(INNER)]
            jobs = Job.fetch_many([member for member, _ in own], self.connection)
            for (member, how), job in zip(own, jobs, strict=True):
                yield BatchResult(member, how, None if job is None or how != "finished" else _result_of(job))

    def batches(self) -> list[Batch]:
        """The batches in it."""
        members = (member for page in self._pages() for member, _ in page)
        return [Batch(id=member[len(INNER) :], connection=self._connection) for member in members if member.startswith(INNER)]

    def _pages(self) -> Iterator[list[tuple[str, str]]]:
        inspector, offset = batch_inspector_of(self.connection), 0
        while page := inspector.page(self.id, offset, _PAGE):
            yield page
            offset += len(page)

    # -- ending it

    def cancel(self) -> tuple[int, int]:
        """No more jobs can be added, those that wait are canceled, those that run will not run again; batches in it too. Returns how many were
        canceled, and how many run. A bounded number at a time, between which others have their turn; should this process die, the fleet goes
        on with it. NoSuchBatchError if it is gone."""
        broker, todo, canceled, running = broker_of(self.connection), [self.id], 0, 0
        while todo:
            answer, more, left, again, inner = broker.cancel_batch(todo[-1])
            if answer != "ok" and todo[-1] == self.id:
                raise batch_refusal(self.id, "missing")
            canceled, running = canceled + more, running + left
            if not again:
                todo.pop()
            todo = inner + todo
        return canceled, running


def _result_of(job: Job) -> Any:
    """None of a job that has begun another life since."""
    return job.result if job.get_status(refresh=False) is JobStatus.FINISHED else None
