"""One call of a task for many jobs: the task gets a list of them, and yields each with its result or exception. Loaded by the first such
call.

The worker sends the jobs as one, in the frame of the first: `gathered` contains a frame for each. Reports and outcomes of the jobs come
back in `member` frames. The last frame tells how the call itself ended; a job that has no outcome then gets none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from time import monotonic
from types import AsyncGeneratorType

from fusion import context
from fusion.execution import outcome
from fusion.execution.callbacks import HOOKS_TIMEOUT
from fusion.execution.frames import FrameReader, pack
from fusion.kernel.forks import ends_forks
from fusion.kernel.timeouts import deferred

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any

    from fusion.execution.guards import BatchedRun, Guard, Judge
    from fusion.execution.hooks import Hooks

    Fields = dict[bytes, bytes]
    #: Makes the run of a member from its fields and a function that sends its frames.
    Make = Callable[[Fields, Callable[[Fields], bool]], BatchedRun]

#: Most bytes of a frame.
_MOST = 1 << 28
#: Least seconds for the hooks of each job, however long the hooks of others took.
_LEAST = 0.1


def run_together(make: Make, fields: Fields, send: Callable[[Fields], None], guard: Guard) -> Fields:
    """Call the task for all jobs. Return the last frame; never raise."""
    call = _Call(make, fields, send, guard)
    answer: Fields = {b"kind": b"gathered"}
    try:
        guard.run_task(context.seconds(fields.get(b"timeout")), call.run)
    except BaseException as error:
        answer |= outcome.failed(error, error.__traceback__) | {b"kind": b"gathered"}
    call.call_back()
    return answer


def call_alone(judge: Judge, function: Callable[..., Any], job: context.CurrentJob) -> Any:
    """Call the task for one job; return the result that it yields, or raise the error that it yields or raises.

    An answer stands, whatever happens after it.
    """
    answers: list[Any] = []

    def take(found: context.CurrentJob, answer: Any) -> None:
        if found is not job or answers:
            raise ValueError("the task answered for a job that it was not given, or has answered for before")
        answers.append(answer)

    try:
        _drive(judge, function, [job], take)
    except BaseException:
        if not answers:
            raise
    if not answers:
        raise RuntimeError(f"{job.func_name} has not answered for the job: it must `yield job, result` for each that it is given")
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]


class _Call:
    """The jobs of one call. Each has its own run, for its outcome."""

    def __init__(self, make: Make, fields: Fields, send: Callable[[Fields], None], guard: Guard) -> None:
        self._send, self._guard = send, guard
        reader = FrameReader(_MOST)
        reader.feed(fields[b"gathered"])
        self._members: list[BatchedRun] = []
        while (frame := reader.next()) is not None:
            self._members.append(make(frame, self._sender(frame)))
        self._open: dict[context.CurrentJob, BatchedRun] = {}
        #: Answered jobs with hooks or a callback. These run after the call, so that they don't delay the others.
        self._later: list[BatchedRun] = []
        self._hooks: dict[BatchedRun, Hooks] = {}

    def _sender(self, fields: Fields) -> Callable[[Fields], bool]:
        execution_id = fields[b"execution_id"]

        def say(frame: Fields) -> bool:
            self._send({b"kind": b"member", b"of": execution_id, b"frame": pack(frame)})
            return True

        return say

    def run(self) -> None:
        """Call the task and pass on each answer as it comes. A job whose arguments can't be read is answered here."""
        function = None
        for member in self._members:
            member.begin(shown=False)
            try:
                function = member.prepare()
                member.enter()
                member.load()
            except BaseException as error:
                member.failed(error)
                self._pass_on(member)
            else:
                self._open[member.job] = member
        if function is not None:
            _drive(self._guard, function, list(self._open), self._take)

    def _take(self, job: context.CurrentJob, answer: Any) -> None:
        with deferred():
            member = self._open.pop(job, None)
            if member is None:
                raise ValueError("the task answered for a job that it was not given, or has answered for before")
            if isinstance(answer, BaseException):
                member.failed(answer)
            else:
                member.succeeded(answer)
            self._pass_on(member)

    def _pass_on(self, member: BatchedRun) -> None:
        if (hooks := member.hooks_due()) is not None:
            self._hooks[member] = hooks
        if hooks is None and member.callback is None:
            self._end(member)
        else:
            self._later.append(member)

    def _end(self, member: BatchedRun) -> None:
        self._sender(member.fields)(member.finish())

    def call_back(self) -> None:
        """Call the hooks and callbacks of the jobs, each under its own limit."""
        if self._hooks:  # of the call: what its members say moves no deadline
            self._send({b"kind": b"callback", b"hooks": b"1"})
        until = monotonic() + HOOKS_TIMEOUT
        for member in self._later:
            context.set_current_job(member.job, among_others=self._guard.among_others)
            if (hooks := self._hooks.get(member)) is not None:
                hooks.run(partial(self._guard.run_with_timeout, max(until - monotonic(), _LEAST), "Middleware"))
            if member.callback is not None:
                try:
                    self._guard.run_with_timeout(member.callback.limit, "Callback", member.call_back)
                except BaseException as error:
                    member.callback_failed(error)
            context.set_current_job(None, among_others=self._guard.among_others)
            self._end(member)


def _drive(judge: Judge, function: Callable[..., Any], jobs: list[context.CurrentJob], take: Callable[[Any, Any], None]) -> None:
    with ends_forks():
        answers = function(jobs)
        if type(answers) is AsyncGeneratorType:
            judge.run_coroutine(_drive_async(answers, take))
            return
        for answer in answers:
            take(*_pair(answer))


async def _drive_async(answers: AsyncIterator[Any], take: Callable[[Any, Any], None]) -> None:
    async for answer in answers:
        take(*_pair(answer))


def _pair(answer: Any) -> tuple[Any, Any]:
    if type(answer) is not tuple or len(answer) != 2 or not isinstance(answer[0], context.CurrentJob):
        raise TypeError(f"the task must yield pairs of a job and its result or exception, not a {type(answer).__name__}")
    return answer
