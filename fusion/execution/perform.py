"""Runs one job inside the horse: it takes the job's fields and returns its outcome, unless the task kills the process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from time import monotonic
from types import CoroutineType, FunctionType, TracebackType

from fusion import middleware
from fusion.context import CurrentJob, seconds, set_current_job
from fusion.exceptions import (
    DependencyFailed,
    DeserializationError,
    FusionError,
    JobInterrupted,
    PayloadTooLarge,
    TaskNotAllowed,
    TaskNotFound,
)
from fusion.execution import outcome
from fusion.execution.callbacks import HOOKS_TIMEOUT, DueCallback, callback_limit
from fusion.execution.frames import pack
from fusion.execution.outcome import used
from fusion.kernel import defaults, sentences, stopping
from fusion.kernel.compression import compressed, plain
from fusion.kernel.failpoints import failpoint
from fusion.kernel.forks import ends_forks
from fusion.kernel.gather import marked
from fusion.kernel.importing import check_no_generator, check_result, is_allowed, resolve, resolve_method
from fusion.kernel.serializers import JSONSerializer, Serializer, get_serializer, split_call

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any

    from fusion.execution.guards import Guard, Judge
    from fusion.execution.hooks import Hooks
    from fusion.execution.steps import Steps, WorkerSocket


Fields = dict[bytes, bytes]

#: Options that each give a job a key, see `enqueue.ties`.
_OF_KEYS = frozenset(("concurrency_key", "max_concurrent", "rate"))
#: Marks the retry policy of a job that came through `fusion.rq`.
_RQ = b'"as": "rq"'
#: Fields of an outcome that are not sent to the worker twice.
_LONG = frozenset((b"result", b"exc_info"))
_OWN_MODULES = frozenset((
    *(__name__, "fusion.kernel.stopping", "fusion.kernel.striking", "fusion.kernel.timeouts", "fusion.kernel.importing", "fusion.kernel.bundled"),
    "fusion.forkserver.asyncio_horse", "fusion.execution.gathered", "fusion.execution.hooks", "fusion.context",
    "fusion.contrib.django.running",
))  # fmt: skip


class Performer:
    """Runs jobs by one worker's settings. Many callers may use it at once: the state of each run is in its `Execution`."""

    def __init__(
        self,
        tasks: tuple[str, ...],
        max_result: int = defaults.MAX_RESULT,
        allow_pickle: bool = False,
        named: tuple[str, ...] = (),
    ) -> None:
        """`named`: the middleware of the settings."""
        self.tasks, self.named = tasks, named
        #: Modules that this worker could not import, and why.
        self.without: dict[str, str] = {}
        #: Binds a job that begins to the log lines of a library, if it needs that.
        self.bind: Callable[[CurrentJob], None] | None = None
        self.max_result = max_result
        self.allow_pickle = allow_pickle
        self.json = JSONSerializer(may_import=self._may_import)

    def run(
        self,
        fields: Fields,
        send: Callable[[Fields], None],
        offer: Callable[[Fields], bool] | None = None,
        line: WorkerSocket | None = None,
        guard: Guard = stopping,
    ) -> Fields:
        """Run a job; return the fields of its outcome frame. Never raise.

        `send`: sends frames to the worker during the run. `offer`: does that only if it need not wait; returns True if it did. `line`: the
        connection that both use, for code that also receives. `guard`: enforces the limits; default: that of a task alone in its process.
        """
        if b"gathered" in fields:
            from fusion.execution.gathered import run_together

            return (
                run_together(lambda member, say: Execution(self, member, say, say, None, guard), fields, send, guard)
                | outcome.used()
            )
        try:
            return execution_of(fields)(self, fields, send, offer, line, guard).run(guard)
        except BaseException as error:  # raised by Fusion's own code, or after a task damaged it
            return outcome.own_fault(error)

    def serializer(self, name: bytes) -> Serializer:
        """Return the serializer that a job names; JSON if it names none."""
        if name in (b"", b"json"):
            return self.json
        return get_serializer(name.decode("utf-8", "replace"), allow_pickle=self.allow_pickle)

    def hooks(self, execution: Execution) -> Hooks:
        """Return the hooks of middleware around that run."""
        from fusion.execution.hooks import Hooks
        from fusion.execution.telemetry import JobTelemetry

        return Hooks(self.named, execution.job, execution.fields, JobTelemetry(execution.send, execution.offer))

    def _may_import(self, module: str) -> bool:
        return module in sys.modules or is_allowed(module, self.tasks)


class Execution:
    """One run of one job, from its fields to its outcome.

    `run` does all of it. A caller that must await in between calls the steps itself: `begin`, `call` (or `prepare` and then the task),
    `succeeded` or `failed`, the `callback` if there is one, `finish`. Only `prepare`, `call` and `call_back` raise.
    """

    #: The class of the current job.
    job_class: type[CurrentJob] = CurrentJob

    def __init__(
        self,
        performer: Performer,
        fields: Fields,
        send: Callable[[Fields], object],
        offer: Callable[[Fields], bool] | None,
        line: WorkerSocket | None,
        judge: Judge,
    ) -> None:
        self._performer, self.fields = performer, fields
        self.send, self.offer, self._line, self._judge = send, offer, line, judge
        self._found = self._keyless = False
        #: The task's function, until its arguments are decoded.
        self._unread: Callable[..., Any] | None = None
        self._reading = False
        self._shown = True
        # A full record may be read by programs that know no compressed texts, and so is a pickled job, by stock RQ.
        self._compress = b"func" in fields and b"serializer" not in fields
        self.job = self.job_class(fields, self._save_meta, offer, self._make_steps, judge.check)
        self._answer: Fields = {}
        self._hooked = bool(middleware.registered or performer.named)
        self.hooks: Hooks | None = None
        self._end: tuple[BaseException | None, Any] = (None, None)
        self._load: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]] | None = None
        self._started = self._elapsed = 0.0
        self._stands: Fields = {}
        #: The callback to run after the task, with its arguments; None if there is none.
        self.callback: DueCallback | None = None

    def run(self, guard: Guard) -> Fields:
        """Run the job; return the fields of its outcome frame."""
        self.begin()
        try:
            value = guard.run_task(seconds(self.fields.get(b"timeout")), self.call)
        except BaseException as error:
            self.failed(error)
            self._run_hooks(guard)
            self._run_callback(guard)  # inside the `except` block: the callback may ask for the current exception
        else:
            self.succeeded(value)
            self._run_hooks(guard)
            self._run_callback(guard)
        return self.finish()

    def _run_callback(self, guard: Guard) -> None:
        if (callback := self.callback) is not None:
            try:
                guard.run_with_timeout(callback.limit, "Callback", self.call_back)
            except BaseException as error:
                self.callback_failed(error)

    # -- the task

    def begin(self, *, shown: bool = True) -> None:
        """Begin the run. `shown`: make it the current job; False for jobs that share a call."""
        self._started, self._shown = monotonic(), shown
        if shown:
            set_current_job(self.job, among_others=self._judge.among_others)

    @property
    def limit(self) -> float | None:
        """Return the seconds that the task may take; None without a limit."""
        return seconds(self.fields.get(b"timeout"))

    def call(self) -> Any:
        """Find the task and call it; return its result."""
        function = self.prepare()
        self.enter()
        self.load()
        if marked(function):
            from fusion.execution.gathered import call_alone

            value = call_alone(self._judge, function, self.job)
        else:
            args, kwargs = self.job.called()
            value = _called(self._judge, function, self.job.func_name, args, kwargs)
        failpoint("horse.after_task")
        return value

    def prepare(self) -> Callable[..., Any]:
        """Return the task's function; its arguments are in `job`."""
        job, fields = self.job, self.fields
        name, load, instance = split_call(self._performer.serializer(fields.get(b"serializer", b"")), fields.get(b"data", b""))
        job.func_name = name
        if self._shown and self._performer.bind is not None:
            self._performer.bind(job)
        if instance is None:
            function = resolve(name, self._performer.tasks, self._performer.without)
        else:
            function = resolve_method(instance, name, self._performer.tasks)
        self._found, self._unread = True, function
        self._keyless = b"k" not in fields.get(b"ties", b"") and _declares_key(function)
        self._load, self._hooked = load, bool(middleware.registered or self._performer.named)
        check_no_generator(function, name)
        return function

    def enter(self) -> None:
        """Call the hooks before the task. They run before the arguments are decoded, as that may query a database."""
        self.job.load_with(self._loaded)
        if self._hooked:
            self.hooks = self._performer.hooks(self)
            self.hooks.enter()

    def load(self) -> None:
        """Decode the arguments. This reads database rows."""
        self._reading = True
        self.job.called()
        self._unread = None
        failpoint("horse.before_task")

    def _loaded(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        assert self._load is not None
        args, kwargs = self._load()
        if b"takes" in self.fields:
            args = (self._given(), *args)
        return args, kwargs

    def _given(self) -> Any:
        """Return the result of the previous job in the chain."""
        raw = self.fields.get(b"given")
        if raw is None:
            raise DependencyFailed(
                "what the job before it in its chain returned is gone: that job was deleted, or did not finish"
            )
        if self.fields.get(b"given_as") == b"pickle":
            return self._performer.serializer(b"pickle").loads(raw)
        return self._performer.json.loads(plain(raw))

    @property
    def _serializer(self) -> Serializer:
        return self._performer.serializer(self.fields.get(b"serializer", b""))

    def _make_steps(self) -> Steps:
        from fusion.execution.steps import Steps

        return Steps(self._line, self.fields.get(b"cursor"), self._performer.json)

    # -- its end

    def succeeded(self, value: Any) -> None:
        """Record the task's result."""
        self._elapsed = monotonic() - self._started
        self._end = None, value
        self._answer = {b"kind": b"finished"}
        if value is not None:
            retry: Any = sys.modules.get("fusion.retry")
            # If the module is not (completely) loaded yet, the value can't be a Retry.
            if issubclass(type(value), getattr(retry, "Retry", ())):
                self._asked(value, retry.retries_done(self.fields.get(b"retryCount")))
                return
            try:
                self._answer[b"result"] = self._encoded(value)
            except BaseException as error:  # the task is done: it must not run again because its result can't be stored
                self._answer[b"result_error"] = outcome.exc_line(error)
        self._plan_callback(b"on_success", value)

    def failed(self, error: BaseException) -> None:
        """Record the error of the task, or of the search for it."""
        self._elapsed = monotonic() - self._started
        self._end = error, None
        try:
            self._failed(error)
        except BaseException:  # any access to it may raise
            self._answer = outcome.failed(error, None)
            self._plan_callback(b"on_failure", type(error), error, None)

    def displaced(self, error: BaseException) -> None:
        """Record that another job of the process ended the task."""
        self._elapsed = monotonic() - self._started
        self._end = error, None
        self._answer = {b"kind": b"displaced"}

    def _failed(self, error: BaseException) -> None:
        job = self.job
        if isinstance(error, (TaskNotAllowed, TaskNotFound)) and not self._found:
            self._answer = outcome.held(error, job.func_name)
            return
        if job.steps is not None and job.steps.interrupted and _is_interrupted(error):
            self._answer = {b"kind": b"interrupted"}
            return
        tb = _beyond_own_frames(error.__traceback__)
        self._answer = outcome.failed(error, tb)
        if not self._found and not isinstance(error, FusionError):
            self._answer[b"own"] = b"1"  # not even the task's name could be read
        if self._unread is not None and (self._reading or issubclass(type(error), DeserializationError)):
            self._answer |= outcome.task_frame(
                job.func_name, self._unread
            )  # the code that read them has read those of other tasks, too
        if self.hooks is not None:
            self.hooks.blame(error, self._answer)
        if self._judge.ended_by_stop(error):
            self._answer[b"kind"] = b"stopped"
            self._plan_callback(b"on_stopped")
        else:
            self._plan_callback(b"on_failure", type(error), error, tb)

    def _asked(self, policy: Any, done: int) -> None:
        """Record that the task returned a `Retry`. It does not fail, and no callback runs, until its retries are used up."""
        from fusion.retry import RetryLater

        self._answer = outcome.asked(policy.to_json(), policy.said)
        error = RetryLater(0, f"the task returned {policy.said} after {done} retries")
        self._end = error, policy
        if done >= policy.max:
            self._answer |= {b"exc_line": outcome.exc_line(error), b"exc_info": outcome.exc_line(error)}
            self._plan_callback(b"on_failure", type(error), error, None)

    def _encoded(self, value: Any) -> bytes:
        serializer, most = self._serializer, self._performer.max_result
        if type(value) in (bytes, str) and len(value) > most:
            raise self._too_large(len(value))
        raw = serializer.dumps(value)
        if len(raw) > most:
            raise self._too_large(len(raw))
        return compressed(raw) if self._compress and serializer is self._performer.json else raw

    def _too_large(self, size: int) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"{sentences.RESULT_SIZE.format(n=size, n_limit=self._performer.max_result)}. Store it elsewhere and return its key"
        )

    def _announce(self, frame: Fields) -> None:
        """Tell the worker that a hook or the callback begins.

        Before the first of them it gets the outcome, which stands from then on, as they may kill the process.
        """
        if not self._stands:
            key = self.callback.key if self.callback is not None else b"middleware"
            self._stands = self._whole()
            self.send({b"kind": b"stands", b"key": key, b"frame": pack(self._stands)})
            failpoint("horse.outcome_stands")
        self.send(frame)

    def _whole(self) -> Fields:
        answer, job = dict(self._answer), self.job
        answer[b"elapsed"] = b"%.6f" % self._elapsed
        answer |= used()
        self._add_meta(answer)
        if job.steps is not None:
            answer |= job.steps.unsent()
        if self._keyless:
            answer[b"keyless"] = job.func_name.encode("utf-8", "replace")
        if job.unsaid:
            answer[b"unsaid"] = b"%d" % job.unsaid
        return answer

    def finish(self) -> Fields:
        """End the run. Return the fields of the outcome frame, without the long ones that were sent already."""
        job = self.job
        if self.hooks is not None and self.hooks.errors:
            self._note("; ".join(self.hooks.errors))
        if job.steps is not None:
            job.steps.end()
        answer = self._whole()
        if job.output is not None and (left := job.output.end()):
            try:
                self.send({b"kind": b"output", **left})
            except OSError:
                pass  # the outcome meets the same
        if self._stands:
            for name in _LONG & self._stands.keys():
                del answer[name]
        if self._shown:
            set_current_job(None, among_others=self._judge.among_others)
        job.end()
        return answer

    # -- its hooks

    def hooks_due(self) -> Hooks | None:
        """Return the hooks to call after the task; None if there are none."""
        if not self._hooked or self._answer.get(b"kind") == b"held":
            return None
        hooks = self.hooks = self.hooks or self._performer.hooks(self)
        hooks.end = self._end
        return hooks if hooks.due(self._answer, self._announce) else None

    def _run_hooks(self, guard: Guard) -> None:
        if (hooks := self.hooks_due()) is not None:
            hooks.run(partial(guard.run_with_timeout, HOOKS_TIMEOUT, "Middleware"))

    # -- its callback

    def _plan_callback(self, key: bytes, *args: Any) -> None:
        spec = self.fields.get(key)
        if not spec:
            return
        try:
            wanted = json.loads(spec)
            self.callback = DueCallback(
                key, wanted["func"], callback_limit(wanted), (self.job, self._callback_connection(), *args)
            )
            # The job is over; the worker extends this process's deadline by the callback's limit.
            self._announce({b"kind": b"callback", b"seconds": b"%.3f" % self.callback.limit})
        except BaseException as error:
            self.callback = None
            self._note(f"{key.decode()}: {outcome.exc_line(error).decode()}")

    def _callback_connection(self) -> Any:
        """Return the second argument of callbacks."""
        return None

    def call_back(self) -> None:
        """Call the `callback`."""
        callback = self.callback
        assert callback is not None
        function = resolve(callback.path, self._performer.tasks, self._performer.without)
        check_no_generator(function, callback.path)
        _called(self._judge, function, callback.path, callback.args, {})

    def callback_failed(self, error: BaseException) -> None:
        """Record the error of the `callback`. It does not change the job's outcome."""
        assert self.callback is not None
        self._note(f"{self.callback.key.decode()}: {outcome.exc_line(error).decode()}")

    def _note(self, line: str) -> None:
        before = self._answer.get(b"callback_error", b"").decode()
        self._answer[b"callback_error"] = outcome.one_line(f"{before}; {line}" if before else line)

    # -- its meta

    def _save_meta(self, meta: dict[str, Any]) -> None:
        self.send({b"kind": b"meta", b"meta": self._encoded_meta(meta)})

    def _encoded_meta(self, meta: dict[str, Any]) -> bytes:
        raw, most = self._performer.json.dumps(meta if type(meta) is dict else dict(meta)), self._performer.max_result
        if len(raw) > most:
            raise PayloadTooLarge(
                f"job.meta {sentences.FIELD_SIZE.format(n=len(raw), n_limit=most)} (max_result, FUSION_MAX_RESULT)"
            )
        return compressed(raw) if self._compress else raw

    def _add_meta(self, answer: Fields) -> None:
        if self.job.touched_meta is None:
            return
        try:
            raw = self._encoded_meta(self.job.touched_meta)
        except BaseException as error:
            answer.setdefault(b"result_error", outcome.one_line(f"job.meta was not saved: {outcome.exc_line(error).decode()}"))
            return
        if raw != self.fields.get(b"meta", b"{}"):
            answer[b"meta"] = raw


def execution_of(fields: Fields) -> type[Execution]:
    """Return the class that runs this job: for one that came through `fusion.rq`, which its retry policy says, the one there."""
    if _RQ in fields.get(b"retry", b""):
        found: type[Execution] = import_module("fusion.rq.running").Execution
        return found
    return Execution


def _is_interrupted(error: BaseException) -> bool:
    """Return True for JobInterrupted, and for a group of only such errors, as a TaskGroup raises it."""
    if not issubclass(type(error), BaseExceptionGroup):
        return isinstance(error, JobInterrupted)
    from fusion.execution.error_groups import is_only

    return is_only(error, JobInterrupted)


def _declares_key(function: Any) -> bool:
    """Return True if `@job` of the function declares a concurrency key. Only the mark of a real function counts."""
    ties = function.__dict__.get("__fusion_ties__") if type(function) is FunctionType else None
    return ties is not None and not _OF_KEYS.isdisjoint(ties)


def _called(judge: Judge, function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    with ends_forks():
        value = function(*args, **kwargs)
        if type(value) is CoroutineType:
            value = judge.run_coroutine(value)
    check_result(value, name)
    return value


def _beyond_own_frames(tb: TracebackType | None) -> TracebackType | None:
    while tb is not None and tb.tb_frame.f_globals.get("__name__") in _OWN_MODULES:
        tb = tb.tb_next
    return tb
