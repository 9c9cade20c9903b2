"""The job that runs here, as its task sees it: in this process, or, where many run at once in one, in this thread or coroutine."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from importlib import import_module
from time import monotonic

from fusion.kernel import defaults

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from collections.abc import Iterable, Iterator
    from datetime import datetime, timedelta
    from typing import Any, NoReturn

    from fusion.batch import Batch
    from fusion.execution.steps import Steps
    from fusion.job import Job

#: The job of this thread or coroutine, in a process of many jobs; that of the process, in one of a single job.
_here: ContextVar[CurrentJob | None] = ContextVar("fusion_job", default=None)
_of_process: CurrentJob | None = None


def get_current_job() -> CurrentJob | None:
    """The job this code runs for; None outside a job, and in a thread that one of many jobs in a process has started itself."""
    return _here.get() or _of_process


def set_current_job(job: CurrentJob | None, *, among_others: bool = False) -> None:
    """Say which job this process runs; `among_others`: only this thread or coroutine. For the code that runs jobs."""
    global _of_process
    if among_others:
        _here.set(job)
    else:
        _of_process = job


class CurrentJob:
    """The job that runs, for its task. Reads nothing from Redis: these are the fields the job was claimed with."""

    def __init__(
        self,
        fields: dict[bytes, bytes],
        save: Callable[[dict[str, Any]], None] | None = None,
        offer: Callable[[dict[bytes, bytes]], bool] | None = None,
        make_steps: Callable[[], Steps] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._fields = fields
        self._save = save
        self._offer = offer
        self._make_steps = make_steps
        self._check = check
        #: What a long job has said of itself; None if it said nothing.
        self.steps: Steps | None = None
        self._room, self._room_at = float(defaults.LOG_BURST), 0.0
        #: Lines dropped since the last one that went out.
        self.unsaid = 0
        self._meta: dict[str, Any] | None = None
        self.func_name = ""
        self._call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._load: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]] | None = None

    def _text(self, key: bytes) -> str | None:
        raw = self._fields.get(key)
        return None if raw is None else raw.decode("utf-8", "replace")

    def _number(self, key: bytes, default: int) -> int:
        raw = self._fields.get(key)
        return int(raw) if raw else default

    def _moment(self, key: bytes) -> datetime | None:
        from fusion.kernel.timeutil import from_iso

        return from_iso(self._fields.get(key))

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments by position."""
        return self.called()[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by name."""
        return self.called()[1]

    def called(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Both, decoded now if they have not been. Raises what that does."""
        if self._call is None:
            self._call = ((), {}) if self._load is None else self._load()
            self._load = None
        return self._call

    def load_with(self, load: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
        """What decodes the arguments, when they are first asked for. For the code that runs jobs."""
        self._load, self._call = load, None

    @property
    def id(self) -> str:
        """The job's id."""
        return self._text(b"id") or ""

    def get_id(self) -> str:
        """RQ's name of `id`."""
        return self.id

    @property
    def origin(self) -> str:
        """Name of the queue it was claimed from."""
        return self._text(b"origin") or ""

    @property
    def description(self) -> str:
        """The text that lists show; the name of the function if none was given."""
        return self._text(b"description") or self.func_name

    @property
    def log_tag(self) -> str | None:
        """Task and type in the event log; None without one."""
        return self._text(b"log_tag")

    @property
    def worker_name(self) -> str | None:
        """Name of the worker that runs it."""
        return self._text(b"worker_name")

    @property
    def execution_id(self) -> str:
        """Differs for every run of the same job."""
        return self._text(b"execution_id") or ""

    @property
    def priority(self) -> int:
        """0 to 255, higher first."""
        return self._number(b"priority", 1)

    @property
    def attempts(self) -> int:
        """Runs of this job that failed before this one."""
        return self._number(b"attempts", 0)

    @property
    def batch_id(self) -> str | None:
        """Id of the batch that it is a member of, or a callback of; None for none."""
        return self._text(b"batch")

    @property
    def batch(self) -> Batch | None:
        """The batch that it is a member of, or a callback of; None for none. Jobs can be added to it while this one runs. Talks to Redis when it is
        used."""
        if self.batch_id is None:
            return None
        found: Batch = import_module("fusion.batch").Batch._of(self.batch_id, self.origin)
        return found

    @property
    def dependencies(self) -> list[Job]:
        """The jobs that it waited for, with their results, in the order in which they were named. Talks to Redis."""
        job = import_module("fusion.job").Job
        found: list[Job] = job.fetch(self.id).dependencies
        return found

    @property
    def timeout(self) -> float | None:
        """Seconds it may run; None for no limit."""
        return seconds(self._fields.get(b"timeout"))

    @property
    def created_at(self) -> datetime | None:
        """When it was accepted, UTC."""
        return self._moment(b"created_at")

    @property
    def enqueued_at(self) -> datetime | None:
        """When it last came to its queue, UTC."""
        return self._moment(b"enqueued_at")

    @property
    def meta(self) -> dict[str, Any]:
        """Free for the task's use. Changes are kept when the job ends; `save_meta` shows them to others before that."""
        if self._meta is None:
            raw = self._fields.get(b"meta")
            loaded: Any = None
            if raw:
                from fusion.kernel.serializers import JSONSerializer

                loaded = JSONSerializer().loads(raw)
            self._meta = loaded if isinstance(loaded, dict) else {}
        return self._meta

    @meta.setter
    def meta(self, value: dict[str, Any]) -> None:
        self._meta = value

    @property
    def touched_meta(self) -> dict[str, Any] | None:
        """`meta` if this process looked at it, else None: then it can't have changed."""
        return self._meta

    def save_meta(self) -> None:
        """Make `meta` visible to others now. Raises SerializationError or PayloadTooLarge if it can't be stored."""
        if self._save is not None:
            self._save(self.meta)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far this job is, as `Job.progress` shows it: `done` of `total`, and a short note. Cheap, and sent no more than once a second;
        the last one is never lost. TypeError or ValueError for figures that are none."""
        self._steps.progress(done, total, note)

    @property
    def cursor(self) -> Any:
        """What `checkpoint` was last given, in this run or an earlier one; None if nothing was."""
        return self._steps.cursor

    def checkpoint(self, cursor: Any, *, wait: bool = False) -> None:
        """Have another run of this job, should this one be cut off, find `cursor`: what a JSON argument may be, of 16 KiB at most. It is
        stored at most once a second, so what came after it is done again; with `wait` it is stored when this returns.

        Raises JobInterrupted when the worker is to end, and the job goes on at this cursor in another run: to be let through.
        PayloadTooLarge or SerializationError for what can't be stored.
        """
        self._steps.checkpoint(cursor, wait)

    def iterate(
        self, source: Iterable[Any] | Callable[[Any], Iterable[Any]], *, cursor: Callable[[Any], Any] | None = None
    ) -> Iterator[Any]:
        """The items of `source` that no earlier run of this job has finished, with a `checkpoint` after each; once per job.

        An iterable is counted, and the items that are done are passed over, so it must give the same ones in the same order. A function
        is called with the cursor, None at first, and returns what comes after it: the cursor is then what `cursor` makes of an item, or
        without one the number of items done.
        """
        return self._steps.iterate(source, cursor)

    @property
    def _steps(self) -> Steps:
        if self.steps is None:
            if self._make_steps is None:
                raise RuntimeError("this job is over: only its own task can say how far it is")
            self.steps = self._make_steps()
        return self.steps

    def check(self) -> None:
        """Raise JobStopped if this job is to stop, and JobTimeoutException if its time is up, here, where the task can bear it: for one that
        catches everything in between. Costs next to nothing."""
        if self._check is not None:
            self._check()

    def rate_limited(self, seconds: float | str | timedelta, reason: str = "") -> NoReturn:
        """Give the job back, as a provider wants no more calls for so long (a 429): it runs again after that at its old place, the attempt
        unspent, and until then no worker starts a job of its concurrency key; of its queue, if it has no key. Those that run go on.

        Raises RateLimited, which must leave the task; ValueError for what is no duration from 1 ms to 24 h.
        """
        from fusion.kernel.timeutil import parse_seconds
        from fusion.retry import RateLimited

        wait = parse_seconds(seconds)
        if not 0.001 <= wait <= defaults.RETRY_ASKED_CAP:
            raise ValueError(f"{seconds!r} must be from 1 ms to {defaults.RETRY_ASKED_CAP / 3600:g} h")
        raise RateLimited(wait, reason)

    def end(self) -> None:
        """The job is over: should something of it live on, it speaks for no other one."""
        self._save = self._offer = self._make_steps = self._check = None

    def say(self, event: str, message: str) -> bool:
        """Pass a line on to the event stream, without waiting. False if it was dropped: too many of them, or no room on the way."""
        now = monotonic()
        self._room = min(defaults.LOG_BURST, self._room + (now - self._room_at) * defaults.LOG_RATE)
        self._room_at = now
        frame = {b"kind": b"log", b"event": event.encode(), b"message": message.encode("utf-8", "replace")}
        if self.unsaid:
            frame[b"dropped"] = b"%d" % self.unsaid
        if self._offer is None or self._room < 1 or not self._offer(frame):
            self.unsaid += 1
            return False
        self._room -= 1
        self.unsaid = 0
        return True

    def __repr__(self) -> str:
        return f"<CurrentJob {self.id} {self.func_name} of {self.origin}>"


def seconds(raw: bytes | None) -> float | None:
    """A stored timeout: absent, empty or not above zero means no limit."""
    if not raw:
        return None
    value = float(raw)
    return value if value > 0 else None
