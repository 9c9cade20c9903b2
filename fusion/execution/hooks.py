"""Calls the hooks of middleware around one run of a job. Loaded by the first run that has any.

Hooks don't change how the job ends, with one exception: an error before the task counts as an error of the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import GeneratorType

from fusion import middleware
from fusion.exceptions import JobTimeoutException
from fusion.execution import outcome
from fusion.kernel.forks import ends_forks
from fusion.middleware import WorkerMiddleware, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any

    from fusion.context import CurrentJob
    from fusion.execution.telemetry import JobTelemetry

#: Hook method by the decision that the worker will make about an error.
_METHODS = {"failed": "on_failure", "retry": "on_retry", "stopped": "on_stopped"}


class Hooks:
    """The hooks of one run, the outermost first."""

    def __init__(self, named: tuple[str, ...], job: CurrentJob, fields: Mapping[bytes, bytes], telemetry: JobTelemetry) -> None:
        """`named`: the middleware of the settings. `telemetry`: takes what they record for collectors."""
        self._named, self._job, self._fields = named, job, fields
        job.telemetry = self._telemetry = telemetry
        self._hooks: list[WorkerMiddleware] = []
        self._entered: list[tuple[WorkerMiddleware, Any]] = []
        self._raised: BaseException | None = None
        self._culprit = ""
        self._verdict = ""
        #: The result of the task: its error, its value.
        self.end: tuple[BaseException | None, Any] = (None, None)
        #: Errors of hooks after the task, one line each.
        self.errors: list[str] = []

    # -- before the task

    def enter(self) -> None:
        """Call the hooks before the task; their errors pass through. ConfigurationError if a middleware of the settings is missing."""
        self._hooks = middleware.workers(self._named)
        for hook in self._having("around_job"):
            try:
                with ends_forks():
                    context = hook.around_job(self._job)
                    if context is None:
                        continue
                    if type(context) is GeneratorType:
                        _begin(context)
                    else:
                        context.__enter__()
            except BaseException as error:
                self._raised, self._culprit = error, f"around_job of {name_of(hook)}"
                error.add_note(f"raised by {self._culprit}, before the task")
                raise
            self._entered.append((hook, context))

    def blame(self, error: BaseException, answer: dict[bytes, bytes]) -> None:
        """Name in the job's error the hook that raised it before the task, if one did."""
        if error is self._raised:
            line = answer[b"exc_line"].decode("utf-8", "replace")
            answer[b"exc_line"] = outcome.one_line(f"{line} (raised by {self._culprit})")

    # -- after it

    def due(self, answer: Mapping[bytes, bytes], send: Callable[[dict[bytes, bytes]], object]) -> bool:
        """Return True if hooks must run after a task with this answer. Then tell the worker, which extends the deadline."""
        try:
            if not self._hooks:  # the task did not begin
                self._hooks = middleware.workers(self._named)
            self._verdict = self._called_for(answer)
            if not self._entered and not (self._verdict and self._having(self._verdict)):
                return False
            send({b"kind": b"callback", b"hooks": b"1"})
        except BaseException as error:
            self._note("middleware", error)
            return False
        return True

    def _called_for(self, answer: Mapping[bytes, bytes]) -> str:
        kind = answer[b"kind"].decode()
        if kind == "failed":
            from fusion.execution.completion import decide

            kind = decide(self._fields, answer).kind
        return _METHODS.get(kind, "")

    def run(self, within: Callable[[Callable[[], None]], object]) -> None:
        """Call the hooks after the task, `within` their limit. Never raise."""
        try:
            within(self.leave)
        except BaseException as error:
            if not self.errors:
                self._note("middleware", error)
        try:
            self._telemetry.end()
        except OSError:  # the task closed the socket: the outcome meets the same
            pass

    def leave(self) -> None:
        """Call the hooks after the task, the innermost first, then those for this kind of end. Only errors that end the whole run pass
        through."""
        error, value = self.end
        while self._entered:
            hook, context = self._entered.pop()
            try:
                with ends_forks():
                    if type(context) is GeneratorType:
                        _end(context, error, value)
                    else:
                        context.__exit__(*(None, None, None) if error is None else (type(error), error, error.__traceback__))
            except BaseException as found:
                if found is not error:  # the task's own error, passed through
                    self._note(f"around_job of {name_of(hook)}", found)
        for hook in self._having(self._verdict) if self._verdict else ():
            try:
                with ends_forks():
                    getattr(hook, self._verdict)(self._job, *(() if self._verdict == "on_stopped" else (error,)))
            except BaseException as found:
                self._note(f"{self._verdict} of {name_of(hook)}", found)

    def _having(self, method: str) -> list[WorkerMiddleware]:
        return [hook for hook in self._hooks if getattr(type(hook), method) is not getattr(WorkerMiddleware, method)]

    def _note(self, what: str, error: BaseException) -> None:
        self.errors.append(f"{what}: {outcome.exc_line(error).decode()}")
        if isinstance(error, JobTimeoutException):
            raise error


def _begin(generator: GeneratorType[Any, Any, Any]) -> None:
    try:
        next(generator)
    except StopIteration:
        raise RuntimeError("around_job did not yield: it must do so once, for the task") from None


def _end(generator: GeneratorType[Any, Any, Any], error: BaseException | None, value: Any) -> None:
    try:
        if error is None:
            generator.send(value)
        else:
            generator.throw(error)
    except StopIteration:
        return
    generator.close()
    raise RuntimeError("around_job yielded twice; its one yield stands for the task")
