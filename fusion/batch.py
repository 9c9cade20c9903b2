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

    It ends once it is closed and all its jobs have ended, with whatever status. If the block raises, the batch is canceled. While a job of
    the batch runs, it can add further jobs, even once the batch is closed: `get_current_job().batch.enqueue(...)`.

    `on_complete` and `on_success` are functions, their paths, or signatures with arguments, queue and options. Each is enqueued once:
    `on_complete` when all jobs have ended for the first time, `on_success` when all have finished, even if only after a requeue. In them
    `get_current_job().batch` is the batch. Its `results()` are what its jobs returned, and are kept until both have run.

    `queue`: the queue of jobs that name none. `open_for`: a batch is closed when no job was added for this time, as its producer has died.
    `keep`: how long its record stays after it has ended. `parent`: the batch that this one is a member of, up to five deep. Times are
    seconds, texts like "5m", or timedeltas; OptionError for others. The constructor sends nothing to Redis; `open` or the `with` does.
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
        #: Number of calls that a middleware holds, and whether to close the batch once they are sent.
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
        """Return the batch with this id; NoSuchBatchError if there is none."""
        found = cls(id=id, connection=connection)
        info = found.info()
        found.name, found._parent = info.name, info.parent
        return found

    @classmethod
    def _of(cls, id: str, queue: str) -> Batch:
        """Return a batch that is known to exist, without reading Redis."""
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
        """Create the batch in Redis, so that jobs can be added. Opening it again does nothing. BatchClosed or NoSuchBatchError if the parent
        takes no more, the latter also if opening took longer than `open_for`. ValueError if batches would be nested six deep, or if a batch
        of this id exists. If a process died while it opened a batch, before its callbacks were stored, another may open one of the same id
        and parent."""
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
            raise ValueError(f"batch {parent} is nested five deep already; no batch can be nested deeper")
        if answer != "ok":
            raise batch_refusal(parent, answer)

    def close(self) -> None:
        """Close the batch: from now on only its own jobs can add jobs. Closing it again is no error; NoSuchBatchError if it is gone. While a
        middleware holds jobs that were added here (until a transaction is committed, say), the batch stays open. It is closed when they have
        been sent."""
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
        else:  # raise the error of the block, not one of `cancel`
            with suppress(FusionError):
                self.cancel()

    def enqueue(self, f: str | Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a member job, as `Queue.enqueue` of the batch's queue does. BatchClosed if the batch takes no more."""
        job = self.queue.enqueue(f, *args, **kwargs, batch=self)
        self._note_held([job])
        return job

    def add(self, queue: str | Queue, job_datas: Iterable[JobData], *, on_commit: bool | None = None) -> list[Job]:
        """Enqueue member jobs, made by `Queue.prepare_data`, as `enqueue_many` of that queue does. They are sent in chunks, each accepted as
        a whole. BatchClosed if the batch takes no more."""
        target = queue if isinstance(queue, Queue) else Queue(queue, self._connection)
        jobs = target.enqueue_many(self._members(job_datas), on_commit=on_commit)
        self._note_held(jobs)
        return jobs

    def _note_held(self, jobs: Iterable[Job]) -> None:
        # Jobs that a middleware holds arrive only when it sends them: until then the batch must stay open.
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
        """Return its present state and counts. NoSuchBatchError if it is gone."""
        found = batch_inspector_of(self.connection).info(self.id)
        if found is None:
            raise batch_refusal(self.id, "missing")
        return found

    @property
    def status(self) -> str:
        """`open`, `running`, `success`, `complete` (over, and not all jobs finished) or `canceled`."""
        return self.info().status

    def wait(self, timeout: float | None = None) -> BatchInfo:
        """Wait until the batch has ended, and return its state. TimeoutError after `timeout` seconds. Polls at growing intervals, up to 0.2
        seconds."""
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
        """Yield its jobs in the order in which they were added, from `offset` on and at most `limit`, each with its status and result. Nested
        batches are left out. Reads pages of 500 jobs, so that no more are in memory."""
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
        """Return the batches nested in it."""
        members = (member for page in self._pages() for member, _ in page)
        return [Batch(id=member[len(INNER) :], connection=self._connection) for member in members if member.startswith(INNER)]

    def _pages(self) -> Iterator[list[tuple[str, str]]]:
        inspector, offset = batch_inspector_of(self.connection), 0
        while page := inspector.page(self.id, offset, _PAGE):
            yield page
            offset += len(page)

    # -- ending it

    def cancel(self, progress: Callable[[int], None] | None = None) -> tuple[int, int]:
        """Cancel the batch, and the batches in it: no more jobs can be added, waiting jobs are canceled, running ones will not run again.
        Returns how many were canceled and how many run. Each call to Redis cancels a bounded number, so that others are served in between. If
        this process dies, the fleet goes on with it. `progress` is called after each such call with the number of jobs. NoSuchBatchError if it
        is gone."""
        broker, todo, canceled, running = broker_of(self.connection), [self.id], 0, 0
        while todo:
            answer, more, left, again, inner = broker.cancel_batch(todo[-1])
            if answer != "ok" and todo[-1] == self.id:
                raise batch_refusal(self.id, "missing")
            canceled, running = canceled + more, running + left
            if progress:
                progress(more + left)
            if not again:
                todo.pop()
            todo = inner + todo
        return canceled, running


def _result_of(job: Job) -> Any:
    """Return the result of a job that is finished; None if it was requeued since."""
    return job.result if job.get_status(refresh=False) is JobStatus.FINISHED else None
