"""A horse that runs many jobs at once on an event loop: coroutines on it, plain functions in threads beside it."""

from __future__ import annotations

import asyncio
import sys
from asyncio import CancelledError, Future, Task
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from time import monotonic
from typing import Any, Protocol

from fusion.exceptions import JobStopped
from fusion.execution import outcome
from fusion.execution.hooks import Hooks
from fusion.execution.perform import Execution, Performer, execution_of
from fusion.forkserver.flusher import Flusher
from fusion.forkserver.horse import EXIT_NO_CHANNEL, HorseSettings, renew_django_connections
from fusion.forkserver.loop_watch import LoopWatch
from fusion.forkserver.offspring import note_struck
from fusion.forkserver.shared_line import RunLine, SharedChannel
from fusion.kernel.compression import plain
from fusion.kernel.failpoints import failpoint
from fusion.kernel.forks import ends_forks
from fusion.kernel.importing import check_result
from fusion.kernel.stopping import WHAT, leads_to
from fusion.kernel.striking import ThreadGuard, Watcher
from fusion.kernel.timeouts import REPEAT, Hold, hold_of_coroutine, overrun
from fusion.kernel.titles import title

#: Most names of plain functions that are remembered, so that their jobs go to a thread at once.
_MOST_NAMES = 10_000
#: Marks arguments of a job that may contain a database row.
_ROW = b'["model",'
#: Seconds at the end for tasks that jobs left on the loop.
_FAREWELL = 1.0


class Owner(Protocol):
    """The run that a task belongs to. `reached`: another run has cancelled tasks of it."""

    reached: bool


#: The run to which the currently running code belongs.
owner_of_tasks: ContextVar[Owner | None] = ContextVar("fusion_owner_of_tasks", default=None)
_all_tasks = asyncio.all_tasks


class OwnTask(asyncio.Task[Any]):
    """A task of Fusion itself: no job can cancel it."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Do nothing."""
        return False


class JobTask(asyncio.Task[Any]):
    """A task of a job. `is_main`: it is the job itself, which no other job can cancel."""

    is_main = False

    def __init__(self, coroutine: Any, **options: Any) -> None:
        super().__init__(coroutine, **options)
        self.owner = owner_of_tasks.get() if (context := options.get("context")) is None else context.get(owner_of_tasks)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the task, unless it is the main task of another job."""
        caller = owner_of_tasks.get()
        if self.owner is not None and caller is not None and caller is not self.owner:
            if self.is_main:
                return False
            self.owner.reached = True
        return super().cancel(msg)


def show_own_tasks() -> None:
    """Make `asyncio.all_tasks` return only a job's own tasks to it."""
    asyncio.all_tasks = asyncio.tasks.all_tasks = _own_tasks


def _own_tasks(loop: asyncio.AbstractEventLoop | None = None) -> set[asyncio.Task[Any]]:
    found, owner = _all_tasks(loop), owner_of_tasks.get()
    return found if owner is None else {task for task in found if getattr(task, "owner", None) is owner}


def run_jobs(fd: int, settings: HorseSettings) -> int:
    """Run jobs until the worker sends no more and all have ended. Return the exit code."""
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    factory: Any = _make_task
    loop.set_task_factory(factory)
    horse = AsyncioHorse(SharedChannel(fd), settings.performer, settings.places, loop)
    title("runs jobs on an event loop")
    show_own_tasks()
    while not horse.over.done():
        try:
            loop.run_until_complete(horse.over)
        except (SystemExit, KeyboardInterrupt):  # raised in a task that a job began: the code that awaits it gets it
            continue
    _end_left(loop)
    return horse.over.result()


def _end_left(loop: asyncio.AbstractEventLoop) -> None:
    """Give tasks that jobs left behind a moment to clean up."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=_FAREWELL))


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Task[Any]:
    return JobTask(coroutine, loop=loop, **options)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        loop: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
    except ImportError:
        return asyncio.new_event_loop()
    return loop


class AsyncioHorse:
    """Runs each job as a task of the loop. `over`: gets the exit code once the worker sends no more and nothing runs."""

    def __init__(self, channel: SharedChannel, performer: Performer, places: int, loop: asyncio.AbstractEventLoop) -> None:
        self._channel, self._performer, self._loop = channel, performer, loop
        self.over: Future[int] = loop.create_future()
        self._runs: dict[bytes, CoroutineGuard | ThreadGuard] = {}
        self._threads = ThreadPoolExecutor(places, "fusion")
        self._watch = LoopWatch(loop, self._tell_standstill, self._tell_end_of_standstill)
        #: Runs whose code may have begun. After the first standstill none is added.
        self._begun: set[bytes] = set()
        self._closed = False
        self._blocker: CoroutineGuard | ThreadGuard | None = None
        #: Strikes in threads, once there are some.
        self._watcher: Watcher | None = None
        self._plain: set[bytes] = set()
        self._flusher = Flusher()
        channel.attach(self)
        loop.add_reader(channel.fd, self._hear)

    def _hear(self) -> None:
        # a task that waited for the worker may have read the frames already
        if not self._channel.hear(wait=False):
            self._loop.remove_reader(self._channel.fd)
            self._end_if_idle()

    def _end_if_idle(self, code: int = 0) -> None:
        if (code or (self._channel.at_end and not self._runs)) and not self.over.done():
            self.over.set_result(code)

    # -- what the worker wants

    def start(self, fields: dict[bytes, bytes], line: RunLine) -> None:
        """Begin to run a job."""
        guard = CoroutineGuard(self._loop, self._watch)
        context = guard.context = copy_context()
        context.run(owner_of_tasks.set, guard)
        self._runs[line.execution_id] = guard
        OwnTask(self._run(fields, line, guard), loop=self._loop, context=context)
        self._watch.mind()

    def stop(self, execution_id: bytes) -> None:
        """Ask the task of this run to stop, unless it is over."""
        if (guard := self._runs.get(execution_id)) is not None:
            guard.stop()

    # -- a run

    async def _run(self, fields: dict[bytes, bytes], line: RunLine, guard: CoroutineGuard) -> None:
        code = 0
        # Keep this order: a run that the watch finds here after it closed this process has begun, or reports that it has not.
        self._begun.add(line.execution_id)
        if self._closed:
            self._refuse(line)
            return
        try:
            answer = await self._answer(fields, line, guard)
        except BaseException as error:  # raised by Fusion's own code, or after a job damaged it
            answer = outcome.own_fault(error)
        answer[b"execution_id"] = line.execution_id
        if answer.get(b"kind") == b"failed":
            await self._loop.run_in_executor(self._threads, note_struck, answer)  # which may wait a moment
        failpoint("horse.before_outcome")
        self._channel.forget(line.execution_id)
        try:
            self._channel.send(answer)
        except OSError:
            code = EXIT_NO_CHANNEL
        failpoint("horse.after_outcome")
        del self._runs[line.execution_id]
        self._begun.discard(line.execution_id)
        self._flusher.flush_soon()
        if not self._runs:
            self._watch.rest()
        self._end_if_idle(code)

    async def _answer(self, fields: dict[bytes, bytes], line: RunLine, guard: CoroutineGuard) -> dict[bytes, bytes]:
        if b"gathered" in fields or fields.get(b"func", b"") in self._plain:
            return await self._run_in_thread(fields, line, guard)
        execution = execution_of(fields)(self._performer, fields, line.send, line.offer, line, guard)
        return await self._run_here(execution, guard) or await self._run_in_thread(fields, line, guard)

    def _refuse(self, line: RunLine) -> None:
        """Report that this run does not begin: another process has its job."""
        with suppress(OSError):  # the worker is gone
            line.send({b"kind": b"unbegun"})
        self._channel.forget(line.execution_id)
        del self._runs[line.execution_id]
        self._begun.discard(line.execution_id)
        self._end_if_idle()

    async def _run_here(self, execution: Execution, guard: CoroutineGuard) -> dict[bytes, bytes] | None:
        """Return the outcome of a coroutine function; None if the task is a plain function."""
        execution.begin()
        try:
            function, job = execution.prepare(), execution.job
            if not iscoroutinefunction(function):
                self._remember(job.func_name)
                return None
            value = await guard.run_task(execution.limit, self._call(execution, function))
            failpoint("horse.after_task")
            check_result(value, job.func_name)
        except BaseException as error:
            if guard.reached and issubclass(type(error), CancelledError):
                execution.displaced(error)
            else:
                execution.failed(error)
        else:
            execution.succeeded(value)
        if (hooks := execution.hooks_due()) is not None:
            await guard.apart(_call_hooks(hooks))
        if (callback := execution.callback) is not None:
            guard.limit = callback.limit
            try:
                await self._loop.run_in_executor(self._threads, copy_context().run, execution.call_back)
            except BaseException as error:
                execution.callback_failed(error)
        return execution.finish()

    async def _call(self, execution: Execution, function: Callable[..., Coroutine[Any, Any, Any]]) -> Any:
        execution.enter()
        if "django.db" in sys.modules and _ROW in plain(execution.fields.get(b"data", b"")):
            await self._loop.run_in_executor(self._threads, _load_rows, execution)
        else:
            execution.load()
        with ends_forks():
            return await function(*execution.job.args, **execution.job.kwargs)

    async def _run_in_thread(self, fields: dict[bytes, bytes], line: RunLine, before: CoroutineGuard) -> dict[bytes, bytes]:
        """Return the outcome of a plain function. Its whole run is in a thread."""
        if self._watcher is None:
            self._watcher = Watcher()
        guard = ThreadGuard(self._watcher, partial(self._tell_tainted, line))
        if before.stopped:
            guard.stop()
        self._runs[line.execution_id] = guard
        return await self._loop.run_in_executor(self._threads, copy_context().run, self._run_whole, fields, line, guard)

    def _run_whole(self, fields: dict[bytes, bytes], line: RunLine, guard: ThreadGuard) -> dict[bytes, bytes]:
        answer = self._performer.run(fields, line.send, line.offer, line, guard)
        if "django.db" in sys.modules:
            renew_django_connections()
        return answer

    def _remember(self, name: str) -> None:
        if len(self._plain) < _MOST_NAMES:
            self._plain.add(name.encode())

    def _tell_tainted(self, line: RunLine, why: str) -> None:
        """Report that an exception was raised in a thread at an arbitrary place. Called in a separate thread."""
        with suppress(OSError):  # the worker is gone
            line.send({b"kind": b"tainted", b"why": why.encode("utf-8", "replace")})

    def _tell_standstill(self, seconds: float, task: object, stack: str) -> None:
        """Report that the loop is blocked: runs that have not begun go to another process. Called in a separate thread."""
        self._closed = True
        begun = set(self._begun)
        frame = {b"kind": b"blocked", b"seconds": b"%.3f" % seconds, b"stack": stack.encode("utf-8", "replace")}
        frame[b"begun"] = b"\n".join(begun)
        owner = getattr(task, "owner", None)
        found = next(((found, guard) for found, guard in list(self._runs.items()) if guard is owner), None)
        if found is not None:
            frame[b"execution_id"], self._blocker = found
        self._channel.send(frame)

    def _tell_end_of_standstill(self, seconds: float) -> None:
        blocker, self._blocker = self._blocker, None
        if isinstance(blocker, CoroutineGuard):
            blocker.blocked += seconds
        with suppress(OSError):  # the worker is gone
            self._channel.send({b"kind": b"round", b"seconds": b"%.3f" % seconds})


def _load_rows(execution: Execution) -> None:
    """Load database rows. Call it in a thread: Django does not allow queries on a loop."""
    try:
        execution.load()
    finally:
        renew_django_connections()


def _settle(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _kept(coroutine: Coroutine[Any, Any, Any], ends: list[tuple[bool, Any]]) -> None:
    """Record how a coroutine ends. If its task is cancelled, the result would be lost; and SystemExit would end the loop."""
    try:
        ends.append((True, await coroutine))
    except BaseException as error:
        ends.append((False, error))


async def _alone(coroutine: Coroutine[Any, Any, Any]) -> Any:
    with ends_forks():
        return await coroutine


async def _call_hooks(hooks: Hooks) -> None:
    hooks.run(_here)


def _here(leave: Callable[[], None]) -> None:
    """Call the hooks of a coroutine on the loop, in its context. Only the watch of the loop limits their time."""
    leave()


class CoroutineGuard:
    """Enforces the soft limits of one run: it raises the due exception in the task at an await, and again each second."""

    among_others = True

    def __init__(self, loop: asyncio.AbstractEventLoop, watch: LoopWatch) -> None:
        self._loop, self._watch = loop, watch
        self._lost = 0.0
        #: The context of the run, shared by all its tasks.
        self.context = copy_context()
        #: True if another job of the process cancelled tasks of this one.
        self.reached = False
        #: Seconds for which it has blocked the loop.
        self.blocked = 0.0
        self._task: Task[Any] | None = None
        self._due: BaseException | None = None
        self._hold = Hold()
        self.stopped = False
        self._until: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: Seconds that the task may take, or its callback.
        self.limit: float | None = None

    async def run_task(self, seconds: float | None, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Await a task's coroutine. In place of its CancelledError raise JobTimeoutException after that many `seconds`, or JobStopped if it
        is to stop."""
        if self.stopped:
            coroutine.close()
            raise JobStopped(WHAT)
        self.limit = seconds if seconds and seconds > 0 else None
        hold_of_coroutine.set(self._hold)
        if self.limit is not None:
            self._until, self._lost = monotonic() + self.limit, self._watch.lost
            self._timer = self._loop.call_later(self.limit, self._overrun)
        try:
            return await self.apart(coroutine, may_be_struck=True)
        except CancelledError as error:
            if self._due is None:
                raise
            raise self._due.with_traceback(error.__traceback__) from None
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def apart(self, coroutine: Coroutine[Any, Any, Any], *, may_be_struck: bool = False) -> Any:
        """Await a coroutine of the job in a separate task, so that a job that cancels it cancels nothing of Fusion."""
        ends: list[tuple[bool, Any]] = []
        over = self._loop.create_future()
        task = JobTask(_kept(coroutine, ends), loop=self._loop, context=self.context)
        task.is_main = True
        if may_be_struck:
            self._task = task
        task.add_done_callback(lambda _: _settle(over))
        try:
            await over
        finally:
            self._task = None
        if not ends:  # cancelled before its first line
            coroutine.close()
            raise CancelledError
        well, end = ends[0]
        if well:
            return end
        raise end

    def stop(self) -> None:
        """Raise JobStopped in the task, unless it is over."""
        self.stopped = True
        if self._task is not None:
            self._strike(JobStopped(WHAT))

    def _overrun(self) -> None:
        self._watch.come_round()
        # Time in which others blocked the loop does not count for it.
        others, self.blocked, self._lost = self._watch.lost - self._lost - self.blocked, 0.0, self._watch.lost
        if others > 0 and self._until is not None:
            self._until += others
            self._timer = self._loop.call_later(self._until - monotonic(), self._overrun)
        else:
            self._strike(overrun("Task", self.limit or 0))

    def _strike(self, error: BaseException) -> None:
        if self._task is None:
            return
        if self._due is None or isinstance(error, JobStopped):
            self._due = error
        if not self._hold.keeps_out(self._due):  # else it is raised after Redis has answered
            self._task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(REPEAT, self._strike, self._due)

    def check(self) -> None:
        """Raise the exception that should end the task, if there is one."""
        if self.stopped:
            raise JobStopped(WHAT)
        if self._until is not None and monotonic() >= self._until:
            raise overrun("Task", self.limit or 0)

    def ended_by_stop(self, error: BaseException) -> bool:
        """Return True if the task ended with this error because it was asked to stop."""
        return self.stopped and leads_to(error, (JobStopped, CancelledError))

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a callback's coroutine on the loop, and return its result to the calling thread, which waits."""
        future = asyncio.run_coroutine_threadsafe(_alone(coroutine), self._loop)
        try:
            return future.result(self.limit)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise overrun("Callback", self.limit or 0) from None
