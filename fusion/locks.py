"""A mutex for task code, on the slots of concurrency keys: docs/limits.md, "Locks"."""

from __future__ import annotations

import sys
from datetime import timedelta
from random import random
from time import monotonic
from types import TracebackType

from fusion.context import CurrentJob, get_current_job
from fusion.enqueue.kinds import key
from fusion.exceptions import FusionError, LockError, LockTimeout
from fusion.kernel.nonces import new_nonce
from fusion.kernel.timeutil import parse_seconds
from fusion.store.access import async_calls_of, calls_of
from fusion.store.client.connections import get_current_connection
from fusion.store.scripting.host import Pause, Steps, run, run_awaited
from fusion.store.write.queue_calls import QueueCalls

#: Seconds until the next in line asks again: at first, and at most. Between these it is this share of the time that it has waited.
_SOON, _LATE, _SHARE = 0.005, 0.2, 0.02
_REFUSED = {
    "again": "this run has it already, or another thread of it waits for it: it can be taken once at a time",
    "own": "it is the concurrency key of this job, which has its slot already; take no lock",
    "many": "this run has ten locks already, and may have no more; give some back first",
    "stale": "another run has this job by now, or another Redis is current: what this run does is no longer accepted",
}


def lock(name: str, wait: float | str | timedelta = 10) -> Lock:
    """Return a lock for the code of a task: `with fusion.lock("crm:42", wait="10s") as number:`, in a coroutine `async with`.

    No two blocks of the fleet with one `name` run at once, nor does a job with this `concurrency_key` if the key's limit is one. The job's run
    holds it: whatever ends the run frees it. `wait`: seconds, a text like "10s" or a timedelta; 0 asks once. The job waits in its worker's slot.
    `number` is higher than that of each earlier holder. ValueError or OptionError for an invalid argument.

    The block raises LockTimeout if it was not free in time. It raises LockError outside a job, in a run that has it already, and for the job's
    own concurrency key. StoreUnavailable if Redis can't be reached.
    """
    seconds = parse_seconds(wait)
    if seconds < 0:
        raise ValueError(f"wait={wait!r}: use 0 or more seconds")
    return Lock(key("name", name), seconds)


class Lock:
    """The lock that `lock` returns. Many runs may use it, each for itself."""

    def __init__(self, name: str, wait: float) -> None:
        self.name, self.wait = name, wait
        #: The call that has the lock, by the execution of its job.
        self._calls: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Lock {self.name!r}>"

    def __enter__(self) -> int:
        if _loop_runs():
            raise LockError(f"lock {self.name!r}: use `async with` in a coroutine, as waiting here would stop its event loop")
        job = self._job()
        connection = get_current_connection()
        return run(self._take(calls_of(connection), job), connection)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        job = self._job()
        connection = get_current_connection()
        run(self._give_back(calls_of(connection), job), connection)

    async def __aenter__(self) -> int:
        job = self._job()
        from fusion.store.client.async_connections import loops_client

        connection = loops_client()
        return await run_awaited(self._take(async_calls_of(connection), job), connection)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        job = self._job()
        from fusion.store.client.async_connections import loops_client

        connection = loops_client()
        await run_awaited(self._give_back(async_calls_of(connection), job), connection)

    def _job(self) -> CurrentJob:
        job = get_current_job()
        if job is None or not job.execution_id:
            raise LockError(
                f"lock {self.name!r}: there is no job here to hold it. Only the code of a task has one, while a worker runs it; where a "
                "process runs many jobs, not in a thread that the task has started"
            )
        return job

    def _take(self, calls: QueueCalls, job: CurrentJob) -> Steps[int]:
        call, began = new_nonce(), monotonic()
        try:
            while True:
                waited = monotonic() - began
                answer = yield calls.lock_call(self.name, job.id, job.execution_id, call, last=waited >= self.wait)
                state, _, place = answer.partition(" ")
                if state != "waits":
                    break
                pause = min(_LATE, int(place) * max(_SOON, waited * _SHARE)) * (0.5 + random())
                yield Pause(max(0.0, min(pause, self.wait - waited)))
                job.check()
        except BaseException:
            yield from self._leave(calls, job, call)
            raise
        if answer == "timeout":
            raise LockTimeout(self.name, self.wait)
        if answer in _REFUSED:
            raise LockError(f"lock {self.name!r}: {_REFUSED[answer]}")
        self._calls[job.execution_id] = call
        return int(answer)

    def _give_back(self, calls: QueueCalls, job: CurrentJob) -> Steps[None]:
        yield from self._leave(calls, job, self._calls.pop(job.execution_id, ""))

    def _leave(self, calls: QueueCalls, job: CurrentJob, call: str) -> Steps[None]:
        try:
            yield calls.unlock_call(self.name, job.id, job.execution_id, call)
        except FusionError:  # Redis is away: the block is done, and the end of the run frees the lock
            pass


def _loop_runs() -> bool:
    """Return True if an event loop runs in this thread."""
    asyncio = sys.modules.get("asyncio.events")
    return asyncio is not None and asyncio._get_running_loop() is not None
