"""The running job as its task sees it: the job of this process or, where a process runs many at once, of this thread or coroutine."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from importlib import import_module
from time import monotonic

from fusion.absent import absent
from fusion.kernel import defaults

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from collections.abc import Iterable, Iterator
    from datetime import datetime, timedelta
    from typing import Any, NoReturn

    from fusion.batch import Batch
    from fusion.execution.steps import Steps
    from fusion.job import Job

_BURST = float(defaults.LOG_BURST)
#: The job of this thread or coroutine, in a process of many jobs; that of the process, in one of a single job.
_here: ContextVar[CurrentJob | None] = ContextVar("fusion_job", default=None)
_of_process: list[CurrentJob | None] = [None]  # a list: to set a name of the module writes to its dict, too


def get_current_job() -> CurrentJob | None:
    """Return the job that this code runs for; None outside a job. Where a process runs many jobs, also None in a thread that a job has
    started itself."""
    return _here.get() or _of_process[0]


def set_current_job(job: CurrentJob | None, *, among_others: bool = False) -> None:
    """Set the job that this process runs; with `among_others` only for this thread or coroutine. For the code that runs jobs."""
    if among_others:
        _here.set(job)
    else:
        _of_process[0] = job


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
        #: Progress and checkpoints of a long job; None if it has reported none.
        self.steps: Steps | None = None
        self._room, self._room_at = _BURST, 0.0
        #: Lines dropped since the last one that was sent.
        self.unsaid = 0
        self._meta: dict[str, Any] | None = None
        self.func_name = ""
        self._call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._load: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]] | None = None

    if not TYPE_CHECKING:  # a type checker would take them for members
        locals().update(absent("current", "save refresh connection get_status get_meta"))

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
        """Return both, decoded now if they were not before. Raises what the decoding raises."""
        if self._call is None:
            self._call = ((), {}) if self._load is None else self._load()
            self._load = None
        return self._call

    def load_with(self, load: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
        """Set the function that decodes the arguments on first use. For the code that runs jobs."""
        self._load, self._call = load, None

    @property
    def id(self) -> str:
        """The job's id."""
        return self._text(b"id") or ""

    def get_id(self) -> str:
        """Return `id`; RQ's name for it."""
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
        """The batch that it is a member of, or a callback of; None for none. Jobs can be added to it while this one runs. Using it reads
        Redis."""
        if self.batch_id is None:
            return None
        found: Batch = import_module("fusion.batch").Batch._of(self.batch_id, self.origin)
        return found

    @property
    def dependencies(self) -> list[Job]:
        """The jobs that it waited for, with their results, in the order in which they were named. Reads Redis."""
        job = import_module("fusion.job").Job
        found: list[Job] = job.fetch(self.id).dependencies
        return found

    @property
    def timeout(self) -> float | None:
        """Seconds it may run; None for no limit."""
        return seconds(self._fields.get(b"timeout"))

    @property
    def created_at(self) -> datetime | None:
        """The time at which it was accepted, UTC."""
        return self._moment(b"created_at")

    @property
    def enqueued_at(self) -> datetime | None:
        """The time at which it last came to its queue, UTC."""
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
        """Return `meta` if this process has read it, else None: then it can't have changed."""
        return self._meta

    def save_meta(self) -> None:
        """Make `meta` visible to others now. Raises SerializationError or PayloadTooLarge if it can't be stored."""
        if self._save is not None:
            self._save(self.meta)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far the job is, as `Job.progress` shows it: `done` of `total`, and a short note. Cheap, and sent at most once a second;
        the last report is never lost. TypeError or ValueError for an invalid number or note."""
        self._steps.progress(done, total, note)

    @property
    def cursor(self) -> Any:
        """The last value given to `checkpoint`, in this run or an earlier one; None if there was none."""
        return self._steps.cursor

    def checkpoint(self, cursor: Any, *, wait: bool = False) -> None:
        """Store `cursor`, so that another run of this job finds it if this run is cut off. It is a value that a JSON argument may be, of at
        most 16 KiB. It is stored at most once a second, so work after the last stored one is done again. With `wait` it is stored when this
        returns.

        Raises JobInterrupted when the worker must end: let it pass, and the job resumes at this cursor in another run. PayloadTooLarge or
        SerializationError for a value that can't be stored.
        """
        self._steps.checkpoint(cursor, wait)

    def iterate(
        self, source: Iterable[Any] | Callable[[Any], Iterable[Any]], *, cursor: Callable[[Any], Any] | None = None
    ) -> Iterator[Any]:
        """Yield the items of `source` that no earlier run of this job has finished, with a `checkpoint` after each. Use it once per job.

        An iterable is counted and its finished items are skipped, so it must give the same items in the same order. A function is called with
        the cursor, None at first, and returns the items after it. The cursor is then `cursor(item)`, or without `cursor` the number of items
        done.
        """
        return self._steps.iterate(source, cursor)

    @property
    def _steps(self) -> Steps:
        if self.steps is None:
            if self._make_steps is None:
                raise RuntimeError("this job has ended: only its own task can report progress")
            self.steps = self._make_steps()
        return self.steps

    def check(self) -> None:
        """Raise JobStopped if this job must stop, and JobTimeoutException if its time is up. For a task that catches every exception
        elsewhere: call it where the task can bear the interruption. Costs next to nothing."""
        if self._check is not None:
            self._check()

    def rate_limited(self, seconds: float | str | timedelta, reason: str = "") -> NoReturn:
        """Give the job back, because a provider accepts no more calls for this time (a 429). The job then runs again at its old place, and no
        attempt is spent. Until then no worker starts a job of its concurrency key or, without a key, of its queue. Running jobs go on.

        Raises RateLimited, which the task must let pass; ValueError for a duration outside 1 ms to 24 h.
        """
        from fusion.kernel.timeutil import parse_seconds
        from fusion.retry import RateLimited

        wait = parse_seconds(seconds)
        if not 0.001 <= wait <= defaults.RETRY_ASKED_CAP:
            raise ValueError(f"{seconds!r} must be from 1 ms to {defaults.RETRY_ASKED_CAP / 3600:g} h")
        raise RateLimited(wait, reason)

    def end(self) -> None:
        """Mark the job as ended: code of it that still runs can't report for another job."""
        self._save = self._offer = self._make_steps = self._check = None

    def say(self, event: str, message: str) -> bool:
        """Send a line to the event stream, without waiting. False if it was dropped: too many lines, or no room on the way."""
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
    """Return a stored timeout in seconds; None (no limit) if it is absent, empty or not above zero."""
    if not raw:
        return None
    value = float(raw)
    return value if value > 0 else None
