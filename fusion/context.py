"""The running job as its task sees it: the job of this process or, where a process runs many at once, of this thread or coroutine."""

from __future__ import annotations

import _thread
import io
import sys
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from importlib import import_module
from os import getpid
from time import monotonic, sleep, time

from fusion.absent import absent
from fusion.kernel import defaults
from fusion.kernel.timeouts import held

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime, timedelta
    from typing import Any, NoReturn

    from fusion.batch import Batch
    from fusion.execution.steps import Steps
    from fusion.execution.telemetry import JobTelemetry
    from fusion.job import Job

_BURST = float(defaults.LOG_BURST)
#: Frames with lines that a job sends at once, and a second; and seconds between those that its thread sends.
_FRAMES, _EVERY = 50.0, 0.05
#: Most characters of a line that are sent: masking looks at no more, and at one more to see that it was cut.
_LONGEST = 2 * defaults.LOG_LINE + 1
#: Seconds that a write to a stream waits for another one; and in which a thread that has ended is gone.
_PATIENCE, _EXIT = 0.02, 0.001
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
        #: What it has printed and logged, on its way to the worker; None if that is nothing.
        self.output: Output | None = None
        #: Whether its task, its hooks and its callback are over.
        self.ended = False
        self._meta: dict[str, Any] | None = None
        self.func_name = ""
        self._call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._load: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]] | None = None

    #: Takes what middleware records for a collector; None if no middleware is called.
    telemetry: JobTelemetry | None = None

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
    def fields(self) -> Mapping[bytes, bytes]:
        """The stored fields that it was claimed with. For integrations: docs/keys.md names them."""
        return self._fields

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
        self.ended = True

    def wrote(self, stream: int, text: str) -> None:
        """Keep what was written to a standard stream for the job's log. Raise nothing, and wait for nobody."""
        try:
            if self.output is None:
                if self._offer is None:
                    return
                self.output = Output(self._offer)
            self.output.write(stream, text)
        except Exception:  # no memory, or no text: the write itself reports that
            return

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


class Output:
    """Lines of a run for its job's log, on their way to the worker: the last ones, unmasked. The worker masks those that it stores.

    A line is sent at once. Of a run that writes too many they are sent together, by a thread that lives as long as lines wait.
    """

    def __init__(self, offer: Callable[[dict[bytes, bytes]], bool]) -> None:
        """`offer`: sends a frame to the worker if it need not wait; returns True if it did."""
        self._offer: Callable[[dict[bytes, bytes]], bool] | None = offer
        self._owner, self._lock = getpid(), _thread.allocate_lock()
        #: The thread that writes now; 0 for none.
        self._writer = 0
        #: The beginnings of lines that have no end yet, by stream.
        self._begun: dict[int, str] = {}
        self._lines: deque[bytes] = deque()
        self._size = self._left_out = 0
        self._room, self._room_at = _FRAMES, monotonic()
        #: Whether a thread sends what waits. It ends when it gets the first lock, and releases the second one then.
        self._followed, self._stop, self._gone = False, _thread.allocate_lock(), _thread.allocate_lock()
        self._stop.acquire()

    def write(self, stream: int, text: str) -> None:
        """Take what was written to a stream, from any thread; also from a process that the task has forked, whose lines are not kept."""
        if getpid() != self._owner or self._offer is None:
            return
        with held():
            thread = _thread.get_ident()
            # Its own thread has the lock if a signal handler prints, which has interrupted this method.
            if self._writer == thread or not self._lock.acquire(timeout=_PATIENCE):
                self._left_out += 1
                return
            self._writer = thread
            try:
                self._take(stream, text)
                if self._lines and not self._send():
                    self._send_later()
            finally:
                self._writer = 0
                self._lock.release()

    def end(self) -> dict[bytes, bytes]:
        """Take no more. Return the fields of the last frame, to be sent before the outcome; empty for none."""
        if getpid() != self._owner:
            return {}
        with held():
            with self._lock:
                for begun in self._begun.values():
                    self._add([begun])
                self._begun.clear()
                self._offer = None
                left = self._frame() if self._lines or self._left_out else {}
            if self._gone.locked():
                self._stop.release()
                self._gone.acquire(timeout=_EVERY)
                sleep(_EXIT)  # else the process might seem to have a thread too many
        return left

    def _take(self, stream: int, text: str) -> None:
        begun, end = self._begun.pop(stream, ""), text.rfind("\n")
        if end < 0:
            self._begin(stream, begun, text)
            return
        if end + 1 < len(text):
            self._begin(stream, "", text[end + 1 :])
        # From the last one on: of ten megabytes only the end is kept, and the rest is not even split.
        found, size = list[str](), 0
        while end >= 0 and len(found) < defaults.LOG_LINES and size < defaults.LOG_BYTES:
            before = text.rfind("\n", 0, end)
            start = before + 1
            line = begun + text[:end][:_LONGEST] if before < 0 else text[start : min(end, start + _LONGEST)]
            if "\r" in line:  # a progress bar has written over what stood there
                line = line.rstrip("\r").rpartition("\r")[2]
            found.append(line[:_LONGEST])
            size, end = size + len(line), before
        if end >= 0:
            self._left_out += text.count("\n", 0, end + 1)
        self._add(reversed(found))

    def _begin(self, stream: int, begun: str, text: str) -> None:
        if (back := text.rfind("\r")) >= 0:
            begun, text = "", text[back + 1 :]  # a progress bar writes over what stood there
        if room := _LONGEST - len(begun):
            begun += text[:room]
        self._begun[stream] = begun

    def _add(self, lines: Iterable[str]) -> None:
        at = int(time() * 1000)
        for line in lines:
            raw = b"%d %b" % (at, line.encode("utf-8", "replace"))
            self._lines.append(raw)
            self._size += len(raw)
        while len(self._lines) > defaults.LOG_LINES or self._size > 2 * defaults.LOG_BYTES:
            self._size -= len(self._lines.popleft())
            self._left_out += 1

    def _frame(self) -> dict[bytes, bytes]:
        return {b"lines": b"\n".join(self._lines), b"left_out": b"%d" % self._left_out}

    def _send(self, *, at_once: bool = False) -> bool:
        now = monotonic()
        self._room = min(_FRAMES, self._room + (now - self._room_at) * _FRAMES)
        self._room_at = now
        if self._offer is None or not (at_once or self._room >= 1):
            return False
        if not self._offer({b"kind": b"output", **self._frame()}):
            return False
        self._room -= 1
        self._lines.clear()
        self._size = self._left_out = 0
        return True

    def _send_later(self) -> None:
        if self._followed or not self._gone.acquire(timeout=_PATIENCE):
            return
        try:
            _thread.start_new_thread(self._follow, ())
        except RuntimeError:  # the system has no thread left: the next line tries again
            self._gone.release()
        else:
            self._followed = True

    def _follow(self) -> None:
        import _signal  # type: ignore[import-not-found, unused-ignore]  # only a Unix has what is used of it

        try:
            _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())  # signals are for the task's threads
            while not self._stop.acquire(timeout=_EVERY):
                with self._lock:
                    if not self._lines:
                        self._followed = False
                        break
                    self._send(at_once=True)
        except Exception:  # the task closed the socket: the outcome takes the lines, if anything can
            pass
        finally:
            self._gone.release()


class JobStream(io.TextIOWrapper):
    """Standard output or error of a process that runs jobs. What a job writes goes where it went before, and into the job's log as well."""

    def write(self, text: str) -> int:
        """Write a text, and keep it for the log of the job that writes it."""
        try:
            return super().write(text)  # first: to send a line lets other threads run, and theirs would come between
        finally:
            if (job := get_current_job()) is not None:
                job.wrote(self.fileno(), text)


def keep_output(kind: type[JobStream]) -> None:
    """Replace the standard streams. Do it before task modules are imported: handlers of `logging` keep the stream that they find."""
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        if type(old) is not io.TextIOWrapper:
            continue  # closed when the worker was started
        old.flush()
        how: dict[str, Any] = {"encoding": old.encoding, "errors": old.errors, "line_buffering": old.line_buffering}
        setattr(sys, name, kind(old.buffer, **how, newline="\n", write_through=old.write_through))


def seconds(raw: bytes | None) -> float | None:
    """Return a stored timeout in seconds; None (no limit) if it is absent, empty or not above zero."""
    if not raw:
        return None
    value = float(raw)
    return value if value > 0 else None
