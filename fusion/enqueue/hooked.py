"""The enqueue call that producer middleware sees: middleware may defer it and observe its result."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from fusion.enqueue.build import JobData, check_options
from fusion.enqueue.call import Terms
from fusion.enqueue.kinds import mapping
from fusion.enqueue.options import OPTIONS
from fusion.exceptions import FusionError, StoreUnavailable
from fusion.job import Job
from fusion.kernel.redaction import masked_text
from fusion.middleware import ProducerMiddleware, name_of
from fusion.settings import get_settings
from fusion.store.layout.records import NewJob
from fusion.store.scripting.host import Steps

log = logging.getLogger("fusion.middleware")

#: Queue -> its jobs, in the given order.
Parts = list[tuple[str, list[JobData]]]


class SignedJobs(Protocol):
    """Signed jobs for one queue, with the terms of their call."""

    @property
    def queue(self) -> str:
        """The queue's name."""

    @property
    def jobs(self) -> list[NewJob]:
        """The jobs, in their order."""

    @property
    def terms(self) -> Terms:
        """The terms of the call."""


class Writer(Protocol):
    """A Queue, as this module uses it."""

    @property
    def connection(self) -> Any:
        """The connection of the jobs that it returns."""

    def _chunks(self, parts: Parts, terms: Terms) -> Sequence[SignedJobs]: ...

    def _write(self, parts: Parts, terms: Terms, alone: bool) -> Steps[Any]: ...

    def _run(self, steps: Steps[Any]) -> Any: ...


class Outgoing:
    """A job about to be enqueued. `id` and `queue` are final; `meta` may be changed. `args` and `kwargs` are those of the call before they
    are encoded; None if the job was prepared elsewhere."""

    __slots__ = ("_data", "_meta", "queue")

    def __init__(self, queue: str, data: JobData) -> None:
        self.queue, self._data = queue, data
        self._meta: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<Outgoing {self.id} {self.func_name} for {self.queue}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self._data.new.id

    @property
    def func_name(self) -> str:
        """The dotted path of its function."""
        return self._data.func_name

    @property
    def args(self) -> tuple[Any, ...] | None:
        """The arguments by position, as given."""
        return None if self._data.call is None else self._data.call[0]

    @property
    def kwargs(self) -> Mapping[str, Any] | None:
        """The arguments by name, as given."""
        return None if self._data.call is None else self._data.call[1]

    @property
    def meta(self) -> dict[str, Any]:
        """The job's meta, as `job.meta` will be. Changes are stored and signed."""
        if self._meta is None:
            raw = self._data.new.fields.get("meta")
            self._meta = json.loads(raw) if raw else {}
        return self._meta

    @property
    def priority(self) -> int:
        """0 to 255, higher first."""
        return self._data.new.priority

    @property
    def options(self) -> dict[str, Any]:
        """The other options of the job in their stored form, by their names in `Queue.enqueue`."""
        new = self._data.new
        found = {option.name: new.fields[option.stored] for option in OPTIONS if new.fields.get(option.stored) is not None}
        found.pop("meta", None)
        found |= {"priority": new.priority, "job_id": new.id}
        others = {"at_front": new.front or None, "ttl": new.ttl, "enqueue_at": new.due, "enqueue_in": new.delay}
        return found | {name: value for name, value in others.items() if value is not None}

    def settled(self) -> JobData:
        """Return the job's data as they will be written."""
        data = self._data
        if self._meta is None:
            return data
        fields = {name: value for name, value in data.new.fields.items() if name != "meta"}
        if (meta := mapping("meta", self._meta)) is not None:
            fields["meta"] = meta
        check_options(data.func_name, fields, get_settings().max_payload)
        return replace(data, new=replace(data.new, fields=fields), size=data.size + len(meta or ""))


class Enqueueing:
    """The jobs that one call is about to write: `jobs`, for `queue`. A call for several queues (a chain) has the first queue here, and each job its
    own. `on_commit` is the call's option, None if it was not given."""

    def __init__(
        self, hooks: Sequence[ProducerMiddleware], parts: Parts, terms: Terms, alone: bool, later: Writer | None
    ) -> None:
        """`alone`: the call returns its only job. `later`: the writer for a deferred call; None if the call can't be deferred."""
        self.queue = parts[0][0] if parts else ""
        self.jobs = [Outgoing(queue, data) for queue, datas in parts for data in datas]
        self.on_commit = terms.on_commit
        #: The deferred call, if a middleware holds it; else None.
        self.held: Held | None = None
        self.parts, self.terms, self.alone = parts, terms, alone
        self._hooks, self._later = hooks, later
        self._is_told = False

    def hold(self) -> Held:
        """Defer the call: it writes nothing now, and returns jobs with their later ids. `Held.send()` writes it at any time; if dropped,
        nothing is enqueued. RuntimeError if it is held already, or can't be held, as the AsyncQueue has a connection of its own."""
        if self.held is not None:
            raise RuntimeError("another middleware holds this call already; use one of them")
        if self._later is None:
            raise RuntimeError(
                "a call of an AsyncQueue that was given a connection can't be held; let it use the settings' Redis"
            )
        self.held = Held(self, self._later)
        return self.held

    # -- for those that enqueue

    def before(self) -> None:
        """Call the `before_enqueue` hooks. If one raises, a note on the error names it."""
        for hook in self._hooks:
            try:
                hook.before_enqueue(self)
            except BaseException as error:
                error.add_note(f"raised by before_enqueue of {name_of(hook)}: nothing was enqueued")
                if self.held is not None:
                    self.held.dropped = True
                raise
        jobs = iter(self.jobs)
        self.parts = [(queue, [next(jobs).settled() for _ in datas]) for queue, datas in self.parts]
        if self.held is not None:
            self.held.made()

    def run(self, write: Callable[[], Steps[Any]]) -> Steps[Any]:
        """Write the call. Returns and raises what `write` does; the error's `repeat()` also does this."""
        try:
            found = yield from write()
        except StoreUnavailable as error:
            if (again := error.steps) is not None:
                error.steps = lambda: self.run(again)
            raise
        self.after(found)
        return found

    def after(self, found: Any) -> None:
        """Call the `after_enqueue` hooks once, the last registered first. Their errors are logged, not raised."""
        if self._is_told:
            return
        self._is_told = True
        jobs = [found] if self.alone else found
        for hook in reversed(self._hooks):
            try:
                hook.after_enqueue(self, jobs)
            except Exception as error:
                raised = masked_text(f"{type(error).__name__}: {error}")
                log.error("after_enqueue of %s raised %s; the jobs are accepted", name_of(hook), raised, exc_info=True)

    def promised(self, connection: Any) -> Any:
        """Return the jobs of a deferred call, as the call returns them."""
        found = []
        for queue, datas in self.parts:
            for data in datas:
                new = data.new
                waits = new.due is not None or bool(new.delay)
                status = "deferred" if "parents" in new.fields else "scheduled" if waits else "queued"
                common = {"origin": queue, "original_queue": queue, "status": status, "priority": new.priority}
                job = Job.of(new.id, {**new.fields, **common}, connection)
                job._held = self.held
                found.append(job)
        return found[0] if self.alone else found


class Held:
    """A deferred enqueue. `send()` writes it; if dropped, nothing is enqueued."""

    def __init__(self, enqueueing: Enqueueing, writer: Writer) -> None:
        self.enqueueing = enqueueing
        self.writer = writer
        #: `ready`: all hooks have run. `dropped`: another middleware refused the call, so `send` does nothing.
        self.ready = self.dropped = False
        #: After `send`: the jobs that the call would have returned, as a list.
        self.jobs: list[Job] | None = None
        self._then: list[Callable[[], object]] = []
        self._when_made: Callable[[], object] | None = None

    def __repr__(self) -> str:
        state = "dropped" if self.dropped else "sent" if self.jobs is not None else "held"
        return f"<Held {state}: {', '.join(self.job_ids[:5])}{', ...' if len(self.job_ids) > 5 else ''}>"

    @property
    def job_ids(self) -> list[str]:
        """The ids of its jobs, in their order."""
        return [job.id for job in self.enqueueing.jobs]

    @property
    def chunks(self) -> Sequence[SignedJobs]:
        """Return what it would write, signed: jobs by queue. For code that stores them elsewhere. RuntimeError before all hooks have run."""
        self._check()
        return self.writer._chunks(self.enqueueing.parts, self.enqueueing.terms)

    def when_made(self, do: Callable[[], object]) -> None:
        """Have `do` called after all hooks have run, before the call returns. If it raises, the call raises the same."""
        self._when_made = do

    def made(self) -> None:
        """Note that all hooks have run: the call changes no more."""
        self.ready = True
        if self._when_made is not None:
            try:
                self._when_made()
            except BaseException:
                self.dropped = True
                raise

    def then(self, do: Callable[[], object]) -> None:
        """Have `do` called after the call was sent; at once if it was sent already."""
        if self.jobs is not None:
            do()
        else:
            self._then.append(do)

    def send(self) -> list[Job]:
        """Enqueue it now, and return the jobs. Raises what the call would have; after StoreUnavailable it is safe to call `repeat()`, or this
        again. A second call sends nothing more. RuntimeError before all hooks have run."""
        if self.jobs is None and not self.dropped:
            self._check()
            call = self.enqueueing
            try:
                found = self.writer._run(call.run(lambda: self.writer._write(call.parts, call.terms, call.alone)))
            except StoreUnavailable as error:
                error.job_ids = error.job_ids or tuple(self.job_ids)
                error.repeat_with(self.send)
                raise
            self._sent([found] if call.alone else found)
        return self.jobs or []

    def _check(self) -> None:
        if not self.ready:
            raise RuntimeError("the call is still being made: send it once it has returned")

    def _sent(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        for do in self._then:
            do()

    def accepted(self, jobs: list[Job]) -> None:
        """Note that these jobs of it were accepted."""
        self.enqueueing.after(jobs[0] if self.enqueueing.alone else jobs)
        self._sent(jobs)

    @property
    def _is_plain(self) -> bool:
        """Return True if it can share a call with others for its queue."""
        call = self.enqueueing
        terms = call.terms
        if self.dropped or self.jobs is not None or len(call.parts) != 1 or terms.replicas is not None or terms.room is not None:
            return False
        return not any("parents" in data.new.fields for data in call.parts[0][1])


#: The result of a deferred call: its jobs, or the error that it would have raised.
Sent = list[Job] | Exception


def send_together(helds: Sequence[Held]) -> list[Sent]:
    """Send deferred calls, in as few round trips as possible. Returns for each, in this order, its jobs, or its own error, as `Held.send`
    would raise it. Once a connection fails to reach Redis, its remaining calls are not tried: their errors say that nothing was written."""
    return _Round(helds).sent()


class _Round:
    """The state of one `send_together`."""

    def __init__(self, helds: Sequence[Held]) -> None:
        self._helds = helds
        self._found: dict[int, Sent] = {}
        #: Connections that can't be reached, each with the error.
        self._down: dict[int, StoreUnavailable] = {}

    def sent(self) -> list[Sent]:
        """Send all of them."""
        groups: dict[tuple[int, str], list[int]] = {}
        for nth, held in enumerate(self._helds):
            if held._is_plain:
                groups.setdefault((id(held.writer.connection), held.enqueueing.queue), []).append(nth)
                continue
            self._send_groups(groups)  # first, as this call may depend on jobs in these groups
            self._send_one(nth)
        self._send_groups(groups)
        return [self._found[nth] for nth in range(len(self._helds))]

    def _send_groups(self, groups: dict[tuple[int, str], list[int]]) -> None:
        for group in groups.values():
            if len(group) == 1 or not self._send_group(group):
                for nth in group:
                    self._send_one(nth)
        groups.clear()

    def _send_one(self, nth: int) -> None:
        held = self._helds[nth]
        connection = id(held.writer.connection)
        if connection in self._down:
            self._found[nth] = self._unsent(held, self._down[connection], nothing_written=True)
            return
        try:
            self._found[nth] = held.send()
        except Exception as error:
            if isinstance(error, StoreUnavailable):
                self._down[connection] = error
            self._found[nth] = error

    def _send_group(self, group: list[int]) -> bool:
        """Send the calls for one queue together. False if one is refused: then each must be sent alone. Jobs of it that were accepted are not
        accepted twice."""
        helds = [self._helds[nth] for nth in group]
        writer, queue = helds[0].writer, helds[0].enqueueing.queue
        if id(writer.connection) in self._down:
            return False
        datas = [data for held in helds for data in held.enqueueing.parts[0][1]]
        if len({data.new.id for data in datas}) < len(datas):
            return False
        try:
            jobs = iter(writer._run(writer._write([(queue, datas)], helds[0].enqueueing.terms, False)))
        except StoreUnavailable as error:
            self._down[id(writer.connection)] = error
            for nth, held in zip(group, helds, strict=True):
                self._found[nth] = self._unsent(held, error, nothing_written=False)
            return True
        except FusionError:
            return False
        for nth, held in zip(group, helds, strict=True):
            found = [next(jobs) for _ in held.enqueueing.jobs]
            held.accepted(found)
            self._found[nth] = found
        return True

    @staticmethod
    def _unsent(held: Held, why: StoreUnavailable, *, nothing_written: bool) -> StoreUnavailable:
        error = type(why)(*why.args)
        error.__cause__ = why.__cause__ or why
        error.job_ids, error.nothing_written = tuple(held.job_ids), nothing_written
        error.repeat_with(held.send)
        return error
