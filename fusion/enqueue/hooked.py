"""The enqueue call that producer middleware sees: middleware may defer it and observe its result."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from fusion import middleware
from fusion.enqueue.build import JobData, check_options
from fusion.enqueue.chunk import Chunk
from fusion.enqueue.kinds import mapping
from fusion.enqueue.options import OPTIONS
from fusion.enqueue.terms import Terms
from fusion.exceptions import FusionError, StoreUnavailable
from fusion.job import Job
from fusion.kernel.redaction import masked_text
from fusion.middleware import ProducerMiddleware, name_of, producers
from fusion.settings import get_settings

if TYPE_CHECKING:
    from typing import Protocol

    class Writer(Protocol):
        """A Queue."""

        @property
        def connection(self) -> Any:
            """Of the jobs that it returns."""

        def _write(self, parts: Parts, terms: Terms, alone: bool) -> Any: ...


log = logging.getLogger("fusion.middleware")

#: Queues, each with what goes there, in the order in which it was given.
Parts = list[tuple[str, list[JobData]]]
T = TypeVar("T")


class Outgoing:
    """A job that is about to be enqueued. `id` and `queue` are final; `meta` may be changed. `args` and `kwargs` are those of the call, before they
    are encoded; None where the job was prepared elsewhere."""

    __slots__ = ("_data", "_meta", "queue")

    def __init__(self, queue: str, data: JobData) -> None:
        self.queue, self._data = queue, data
        self._meta: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<Outgoing {self.id} {self.func_name} for {self.queue}>"

    @property
    def id(self) -> str:
        """Its id."""
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
        """Data beside it, as `job.meta` will be. What is changed here is stored, and signed."""
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
        """What else was said of it, by the names of the options of `Queue.enqueue`, in the form in which it is stored."""
        new = self._data.new
        found = {option.name: new.fields[option.stored] for option in OPTIONS if new.fields.get(option.stored) is not None}
        found.pop("meta", None)
        found |= {"priority": new.priority, "job_id": new.id}
        others = {"at_front": new.front or None, "ttl": new.ttl, "enqueue_at": new.due, "enqueue_in": new.delay}
        return found | {name: value for name, value in others.items() if value is not None}

    def settled(self) -> JobData:
        """What is to be written of it."""
        data = self._data
        if self._meta is None:
            return data
        fields = {name: value for name, value in data.new.fields.items() if name != "meta"}
        if (meta := mapping("meta", self._meta)) is not None:
            fields["meta"] = meta
        check_options(data.func_name, fields, get_settings().max_payload)
        return replace(data, new=replace(data.new, fields=fields), size=data.size + len(meta or ""))


class Enqueueing:
    """What one call is about to write: `jobs`, for `queue`; calls for several queues (chains) name the first here, and each job its own. `on_commit`
    is the call's option, None if it was not given."""

    def __init__(
        self, hooks: Sequence[ProducerMiddleware], parts: Parts, terms: Terms, alone: bool, later: Writer | None
    ) -> None:
        """`alone`: the call returns its only job. `later`: what writes it, if it is held; None: it can't be."""
        self.queue = parts[0][0] if parts else ""
        self.jobs = [Outgoing(queue, data) for queue, datas in parts for data in datas]
        self.on_commit = terms.on_commit
        #: What a middleware has had it hold; None if none has.
        self.held: Held | None = None
        self.parts, self.terms, self.alone = parts, terms, alone
        self._hooks, self._later = hooks, later
        self._is_told = False

    def hold(self) -> Held:
        """Have the call write nothing now, and return jobs with the ids that they will have. `Held.send()` writes it, whenever that is; what never
        does is forgotten. RuntimeError if it is held already, or can't be: of an AsyncQueue with a connection of its own."""
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
        """Call the hooks. Raises what one of them does, which is named in a note of the error."""
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

    def run(self, write: Callable[[], Any]) -> Any:
        """Write it. Returns and raises what that does; an error's `repeat()` ends here, too."""
        try:
            found = write()
        except StoreUnavailable as error:
            self._repeat(error, self.run)
            raise
        self.after(found)
        return found

    async def run_awaited(self, write: Callable[[], Awaitable[Any]]) -> Any:
        """`run`, of a coroutine."""
        try:
            found = await write()
        except StoreUnavailable as error:
            self._repeat(error, self.run_awaited)
            raise
        self.after(found)
        return found

    @staticmethod
    def _repeat(error: StoreUnavailable, run: Callable[[Any], Any]) -> None:
        if (again := error._again) is not None:
            error.repeat_with(lambda: run(again))

    def after(self, found: Any) -> None:
        """Call the hooks, the last first, once. Raises nothing of theirs."""
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
        """What the call returns of jobs that are held."""
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
    """A call that was made and is not sent. `send()` sends it; forgotten, it was never made."""

    def __init__(self, enqueueing: Enqueueing, writer: Writer) -> None:
        self.enqueueing = enqueueing
        self.writer = writer
        #: The call has been made; it was refused by another middleware, and `send` does nothing.
        self.ready = self.dropped = False
        #: What the call would have returned, as a list, once it was sent.
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
    def chunks(self) -> list[Chunk]:
        """What it would write, signed: jobs by queue. For those that store it elsewhere. RuntimeError while the call is being made."""
        self._check()
        call = self.enqueueing
        return [Chunk.of(queue, datas, call.terms) for queue, datas in call.parts]

    def when_made(self, do: Callable[[], object]) -> None:
        """Have this called once all hooks were asked, before the call returns. What it raises, the call raises."""
        self._when_made = do

    def made(self) -> None:
        """The call is as it will be."""
        self.ready = True
        if self._when_made is not None:
            try:
                self._when_made()
            except BaseException:
                self.dropped = True
                raise

    def then(self, do: Callable[[], object]) -> None:
        """Have this called when it was sent; at once, if it was."""
        if self.jobs is not None:
            do()
        else:
            self._then.append(do)

    def send(self) -> list[Job]:
        """Enqueue it now, and return the jobs. Raises what the call would have; of StoreUnavailable `repeat()` is safe, and so is this. Once it was
        sent it sends nothing more. RuntimeError while the call is being made."""
        if self.jobs is None and not self.dropped:
            self._check()
            call = self.enqueueing
            try:
                found = call.run(lambda: self.writer._write(call.parts, call.terms, call.alone))
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
        """Note that these jobs were accepted for it."""
        self.enqueueing.after(jobs[0] if self.enqueueing.alone else jobs)
        self._sent(jobs)

    @property
    def _is_plain(self) -> bool:
        """It can share a call with others for its queue."""
        call = self.enqueueing
        terms = call.terms
        if self.dropped or self.jobs is not None or len(call.parts) != 1 or terms.replicas is not None or terms.room is not None:
            return False
        return not any("parents" in data.new.fields for data in call.parts[0][1])


#: The result of a call that was sent: its jobs, or the error that it would have raised.
Sent = list[Job] | Exception


def send_together(helds: Sequence[Held]) -> list[Sent]:
    """Send calls that were held, in as few calls as may be. For each, in this order, its jobs, or the error that it alone has, as `Held.send`
    raises it. Once Redis can't be reached, what is left of that connection is not tried: its errors say that nothing was written."""
    return _Round(helds).sent()


class _Round:
    """`send_together`."""

    def __init__(self, helds: Sequence[Held]) -> None:
        self._helds = helds
        self._found: dict[int, Sent] = {}
        #: Connections that can't be reached, and why.
        self._down: dict[int, StoreUnavailable] = {}

    def sent(self) -> list[Sent]:
        """Send them all."""
        groups: dict[tuple[int, str], list[int]] = {}
        for nth, held in enumerate(self._helds):
            if held._is_plain:
                groups.setdefault((id(held.writer.connection), held.enqueueing.queue), []).append(nth)
                continue
            self._send_groups(groups)  # before it: it may wait for what is among them
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
        """Send what goes to one queue; False if each is to be sent by itself, as one is refused. What was accepted of a call that was refused is
        not accepted twice."""
        helds = [self._helds[nth] for nth in group]
        writer, queue = helds[0].writer, helds[0].enqueueing.queue
        if id(writer.connection) in self._down:
            return False
        datas = [data for held in helds for data in held.enqueueing.parts[0][1]]
        if len({data.new.id for data in datas}) < len(datas):
            return False
        try:
            jobs = iter(writer._write([(queue, datas)], helds[0].enqueueing.terms, False))
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


def hooks() -> Sequence[ProducerMiddleware]:
    """What sees the enqueues of this process: mostly nothing."""
    named = get_settings().middleware
    return producers(named) if named or middleware.registered else ()


def enqueue(queue: Writer, hooks: Sequence[ProducerMiddleware], parts: Parts, terms: Terms, *, alone: bool = False) -> Any:
    """Have a Queue write these parts, amid the hooks."""
    call = Enqueueing(hooks, parts, terms, alone, queue)
    call.before()
    if call.held is not None:
        return call.promised(queue.connection)
    return call.run(lambda: queue._write(call.parts, call.terms, alone))
