"""Runs one job inside the horse: fields in, outcome out, whatever the task does short of killing the process."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from types import CoroutineType, FunctionType, TracebackType

from fusion import context
from fusion.exceptions import DependencyFailed, JobInterrupted, PayloadTooLarge, TaskNotAllowed, TaskNotFound
from fusion.execution import outcome
from fusion.execution.callbacks import callback_limit
from fusion.kernel import defaults
from fusion.kernel.compression import compressed, plain
from fusion.kernel.failpoints import failpoint
from fusion.kernel.importing import check_no_generator, check_result, is_allowed, resolve
from fusion.kernel.serializers import JSONSerializer, Serializer, get_serializer, split_call
from fusion.kernel.stopping import ended_by_stop, run_task
from fusion.kernel.timeouts import run_with_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any

    from fusion.execution.steps import Line, Steps

Fields = dict[bytes, bytes]

#: ru_maxrss is bytes on macOS, KiB elsewhere.
_MAXRSS_UNIT = 1024 if sys.platform == "darwin" else 1
#: Options of which each gives a job a key, see `enqueue.ties`.
_OF_KEYS = frozenset(("concurrency_key", "max_concurrent", "rate"))
_OWN_MODULES = frozenset({__name__, "fusion.kernel.stopping", "fusion.kernel.timeouts", "fusion.kernel.importing"})


class Performer:
    """Runs jobs under one worker's rules."""

    def __init__(self, tasks: tuple[str, ...], max_result: int = defaults.MAX_RESULT, allow_pickle: bool = False) -> None:
        self._tasks = tasks
        self._send: Callable[[Fields], None] = _send_nowhere
        self._max_result = max_result
        self._allow_pickle = allow_pickle
        self._json = JSONSerializer(may_import=self._may_import)
        self._found = False
        self._compress = self._keyless = False

    def run(
        self,
        fields: Fields,
        send: Callable[[Fields], None],
        offer: Callable[[Fields], bool] | None = None,
        line: Line | None = None,
    ) -> Fields:
        """The outcome frame's fields. Never raises. `send` delivers interim frames to the worker; `offer` does so unless it had to wait,
        and says whether it did. `line`: where both are of, for what hears of the worker, too."""
        started = monotonic()
        self._send = send
        self._found = self._keyless = False
        # A record of the second layout: those who read it know compressed texts. Stock RQ, which reads pickled jobs, does not.
        self._compress = b"func" in fields and b"serializer" not in fields
        job = context.CurrentJob(fields, self._save_meta, offer, lambda: self._make_steps(fields, line))
        context.set_current_job(job)
        try:
            limit = context.seconds(fields.get(b"timeout"))
            value = run_task(limit, self._perform, job, fields)
        except BaseException as error:
            elapsed = monotonic() - started
            answer = self._failure(job, fields, error)
        else:
            elapsed = monotonic() - started
            answer = self._success(job, fields, value)
        answer[b"elapsed"] = b"%.6f" % elapsed
        answer[b"maxrss"] = b"%d" % (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // _MAXRSS_UNIT)
        self._add_meta(job, fields, answer)
        if job.steps is not None:
            answer |= job.steps.left()
        if self._keyless:
            answer[b"keyless"] = job.func_name.encode("utf-8", "replace")
        if job.unsaid:
            answer[b"unsaid"] = b"%d" % job.unsaid
        context.set_current_job(None)
        job.end()
        return answer

    def _make_steps(self, fields: Fields, line: Line | None) -> Steps:
        from fusion.execution.steps import Steps

        return Steps(line, fields.get(b"cursor"), self._json)

    def _perform(self, job: context.CurrentJob, fields: Fields) -> Any:
        name, load = split_call(self._serializer(fields), fields.get(b"data", b""))
        job.func_name = name
        function = resolve(name, self._tasks)
        self._found = True
        self._keyless = b"k" not in fields.get(b"ties", b"") and _declares_key(function)
        job.args, job.kwargs = load()
        if b"takes" in fields:
            job.args = (self._given(fields), *job.args)
        check_no_generator(function, name)
        failpoint("horse.before_task")
        value = _called(function, name, job.args, job.kwargs)
        failpoint("horse.after_task")
        return value

    def _given(self, fields: Fields) -> Any:
        """What the step before this one in its chain returned."""
        raw = fields.get(b"given")
        if raw is None:
            raise DependencyFailed(
                "what the job before it in its chain returned is gone: that job was deleted, or did not finish"
            )
        if fields.get(b"given_as") == b"pickle":
            return get_serializer("pickle", allow_pickle=self._allow_pickle).loads(raw)
        return self._json.loads(plain(raw))

    def _serializer(self, fields: Fields) -> Serializer:
        name = fields.get(b"serializer", b"")
        if name in (b"", b"json"):
            return self._json
        return get_serializer(name.decode("utf-8", "replace"), allow_pickle=self._allow_pickle)

    def _may_import(self, module: str) -> bool:
        return module in sys.modules or is_allowed(module, self._tasks)

    def _success(self, job: context.CurrentJob, fields: Fields, value: Any) -> Fields:
        retry = sys.modules.get("fusion.retry")  # not loaded: then the value can't be one
        if retry is not None and issubclass(type(value), retry.Retry):
            return self._asked(job, fields, value, retry.retries_done(fields.get(b"retryCount")))
        answer: Fields = {b"kind": b"finished"}
        if value is not None:
            try:
                answer[b"result"] = self._encoded(value, self._serializer(fields))
            except BaseException as error:  # the task is done: a result that can't be kept must not make it run again
                answer[b"result_error"] = outcome.exc_line(error)
        self._call_back(b"on_success", fields, answer, job, None, value)
        return answer

    def _failure(self, job: context.CurrentJob, fields: Fields, error: BaseException) -> Fields:
        if isinstance(error, (TaskNotAllowed, TaskNotFound)) and not self._found:
            return outcome.held(error, job.func_name)
        if isinstance(error, JobInterrupted) and job.steps is not None and job.steps.interrupted:
            return {b"kind": b"interrupted"}
        tb = _beyond_own_frames(error.__traceback__)
        answer = outcome.failed(error, tb)
        if ended_by_stop(error):
            answer[b"kind"] = b"stopped"
            self._call_back(b"on_stopped", fields, answer, job, None)
            return answer
        self._call_back(b"on_failure", fields, answer, job, None, type(error), error, tb)
        return answer

    def _asked(self, job: context.CurrentJob, fields: Fields, policy: Any, done: int) -> Fields:
        """The task returned a `Retry`. No failure, and no callback, until its retries are used up."""
        answer = outcome.asked(policy.to_json(), policy.said)
        if done >= policy.max:
            from fusion.retry import RetryLater

            error = RetryLater(0, f"the task returned {policy.said} after {done} retries")
            answer |= {b"exc_line": outcome.exc_line(error), b"exc_info": outcome.exc_line(error)}
            self._call_back(b"on_failure", fields, answer, job, None, type(error), error, None)
        return answer

    def _encoded(self, value: Any, serializer: Serializer) -> bytes:
        if type(value) in (bytes, str) and len(value) > self._max_result:
            raise self._too_large(len(value))
        raw = serializer.dumps(value)
        if len(raw) > self._max_result:
            raise self._too_large(len(raw))
        return compressed(raw) if self._compress and serializer is self._json else raw

    def _too_large(self, size: int) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"the result of {size} bytes was dropped; the limit is {self._max_result} (max_result, FUSION_MAX_RESULT). "
            "Store it elsewhere and return its key"
        )

    def _call_back(self, key: bytes, fields: Fields, answer: Fields, *args: Any) -> None:
        spec = fields.get(key)
        if not spec:
            return
        try:
            wanted = json.loads(spec)
            limit = callback_limit(wanted)
            # The job is over; the worker moves the deadline of this process on by what the callback may take.
            self._send({b"kind": b"callback", b"seconds": b"%.3f" % limit})
            run_with_timeout(limit, "Callback", self._run_callback, wanted["func"], args)
        except BaseException as error:
            answer[b"callback_error"] = outcome.one_line(f"{key.decode()}: {outcome.exc_line(error).decode()}")

    def _run_callback(self, path: str, args: tuple[Any, ...]) -> None:
        function = resolve(path, self._tasks)
        check_no_generator(function, path)
        _called(function, path, args, {})

    def _save_meta(self, meta: dict[str, Any]) -> None:
        self._send({b"kind": b"meta", b"meta": self._encoded_meta(meta)})

    def _encoded_meta(self, meta: dict[str, Any]) -> bytes:
        raw = self._json.dumps(meta)
        if len(raw) > self._max_result:
            raise PayloadTooLarge(
                f"job.meta takes {len(raw)} bytes; the limit is {self._max_result} (max_result, FUSION_MAX_RESULT)"
            )
        return compressed(raw) if self._compress else raw

    def _add_meta(self, job: context.CurrentJob, fields: Fields, answer: Fields) -> None:
        if job.touched_meta is None:
            return
        try:
            raw = self._encoded_meta(job.touched_meta)
        except BaseException as error:
            answer.setdefault(b"result_error", outcome.one_line(f"job.meta was not saved: {outcome.exc_line(error).decode()}"))
            return
        if raw != fields.get(b"meta", b"{}"):
            answer[b"meta"] = raw


def _declares_key(function: Any) -> bool:
    """True if `@job` has each call of the function wait for a slot of a key; only a real function's own mark counts."""
    ties = function.__dict__.get("__fusion_ties__") if type(function) is FunctionType else None
    return ties is not None and not _OF_KEYS.isdisjoint(ties)


def _called(function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    value = function(*args, **kwargs)
    if type(value) is CoroutineType:
        import asyncio

        value = asyncio.run(value)
    check_result(value, name)
    return value


def _send_nowhere(fields: Fields) -> None:
    return None


def _beyond_own_frames(tb: TracebackType | None) -> TracebackType | None:
    while tb is not None and tb.tb_frame.f_globals.get("__name__") in _OWN_MODULES:
        tb = tb.tb_next
    return tb
