"""Decides the outcome of a run: from the frame that its process sent, or from how that process died."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from time import monotonic

from fusion.execution.completion import BEGUN, Decision, decide, died, kept
from fusion.execution.frames import FrameError, unpack
from fusion.executors import readings
from fusion.executors.base import Death, KillCause, Run
from fusion.forkserver.messages import describe_death
from fusion.kernel import sentences
from fusion.runtime.history import History
from fusion.runtime.job_log import one_line
from fusion.runtime.outbox import Outbox
from fusion.store.layout.records import Claimed
from fusion.worker.admission import Slots
from fusion.worker.blocked import BlockedWork

_KINDS = (b"finished", b"failed", b"held", b"interrupted", b"stopped", b"displaced")
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, LookupError, RecursionError)
#: Most suspects that share a process, whatever number of jobs it had. Each death halves them: after five deaths a suspect is alone. A run
#: goes back uncharged at most that often.
MOST_SUSPECTS = 16
NOT_BEGUN = Decision("stopped", "it had not begun")
_POLITE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


#: Seconds between two warnings about the same function, and functions that are remembered.
_REPEAT, _MOST_NAMED = 3600.0, 1000


class MissingKeyWarnings:
    """Counts jobs without the concurrency key that their task declares, and logs each such function once an hour.

    Such jobs were enqueued by name, where the declaration was not known. No limit held for them.
    """

    def __init__(self, history: History, log: logging.Logger) -> None:
        self._history, self._log = history, log
        self._named: dict[str, float] = {}

    def warn(self, function: str) -> None:
        """Count a job of the function, and log the function if that is due."""
        self._history.note_keyless(function)
        now = monotonic()
        if now - self._named.get(function, -_REPEAT) < _REPEAT:
            return
        if len(self._named) >= _MOST_NAMED:
            self._named.clear()
        self._named[function] = now
        self._log.warning(
            "jobs of %s come without the concurrency key that its @job declares, and no limit holds for them: where the function can't "
            "be imported, give concurrency_key= with the enqueue",
            one_line(function, 200),
        )


class Outcomes:
    """Decides the outcome of each run, and puts it into the outbox."""

    def __init__(
        self, outbox: Outbox, blocked_work: BlockedWork, slots: Slots, missing_keys: MissingKeyWarnings, grace: float
    ) -> None:
        """`grace`: seconds that a run has beyond its timeout."""
        self._outbox, self._blocked_work, self._slots = outbox, blocked_work, slots
        self._missing_keys, self._grace = missing_keys, grace

    def uncommitted(self) -> list[Claimed]:
        """Jobs whose outcome is not committed: this worker still holds their leases."""
        return self._outbox.uncommitted()

    def refuse(self, claimed: Claimed, decision: Decision) -> None:
        """Record the outcome of a job that must not run."""
        self._outbox.add(claimed, decision, 0.0)

    def give_back(self, claimed: Claimed, why: str) -> None:
        """Release a job that has not begun: it goes back to its place, nothing is counted."""
        self._outbox.add(claimed, Decision("release", why), 0.0)

    def stopped(self, claimed: Claimed) -> None:
        """Record that a job was stopped before it began."""
        self._outbox.add(claimed, NOT_BEGUN, 0.0)

    def decided(self, run: Run, decision: Decision) -> None:
        """Record an outcome that the worker decided, without a frame of the run."""
        self._outbox.add(run.claimed, decision, monotonic() - run.began)

    def begun(self, run: Run) -> None:
        """Report that a prefetched job runs: if this worker dies now, the job counts as lost."""
        self._outbox.report_begun(run.claimed)

    def stands(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        """Keep the outcome of a run whose task is over. It stands even if the process dies in the hooks or the callback that begin now."""
        try:
            found = unpack(frame.get(b"frame", b"")[4:])
        except FrameError:
            return
        if run.stands is None and found.get(b"kind") in _KINDS:
            run.stands = found
            run.last = readings.callback(frame)

    def received(self, run: Run, frame: Mapping[bytes, bytes]) -> None:
        """Decide a run whose process sent its outcome.

        A failure just after a signal to the process is held for a moment. If this worker gets the same signal, the whole tree was signaled:
        then the job counts as lost, unless it has `on_lost="fail"`.
        """
        fields, elapsed = run.claimed.fields, readings.elapsed(frame)
        if run.stands is not None and run.stands[b"kind"] == frame.get(b"kind"):
            frame = {**run.stands, **frame}  # fields that were sent before are not sent again
        if frame.get(b"kind") == b"stopped" and not run.stopping:
            frame = {**frame, b"kind": b"failed"}  # nobody asked it to stop
        decision = of_frame(fields, frame)
        ago = readings.signaled(frame) if decision.kind in ("failed", "retry") else None
        if b"keyless" in frame:
            self._missing_keys.warn(frame[b"keyless"].decode("utf-8", "replace"))
        if decision.kind == "held":
            self._blocked_work.lacks(str(decision.fields["task"]), decision.reason, monotonic())
        peak = _peak(run, frame)
        if ago is None or fields.get(b"on_lost") == b"fail":
            self._outbox.add(run.claimed, decision, elapsed, peak)
        else:
            self._outbox.add_signaled(run.claimed, decision, elapsed, struck(decision), monotonic() - ago, peak)

    def died(self, run: Run, death: Death, said: Mapping[bytes, bytes]) -> None:
        """Decide a run whose process died without an outcome. `said`: reports of the run that Redis does not have yet.

        A run killed as LOST or COLD is not decided here: another worker has the job, or `deregister` gives it back. A run whose outcome
        stands ends with that outcome.
        """
        if run.stands is not None:
            self.received(run, {**said, **run.stands, b"callback_error": f"{run.last}: {_cut_short(run, death)}".encode()})
        elif run.killed not in (KillCause.COLD, KillCause.LOST):
            decision = of_death(run, death, stopping=self._slots.stopping, grace=self._grace)
            if said:
                decision = replace(decision, fields={**kept(said), **decision.fields})
            self._outbox.add(run.claimed, decision, monotonic() - run.began, _peak(run, {b"maxrss": b"%d" % death.maxrss}))


def of_frame(job: Mapping[bytes, bytes], frame: Mapping[bytes, bytes]) -> Decision:
    """Decide by an outcome frame. A frame of an unknown kind is a failure."""
    try:
        if frame.get(b"kind") not in _KINDS:
            return died(job, "its process sent something that is not an outcome")
        return decide(job, frame)
    except _UNREADABLE as error:
        return _corrupt(error, frame.get(b"exc_info", b""))


def of_death(run: Run, death: Death, *, stopping: bool, grace: float) -> Decision:
    """Decide the outcome from the death of a process that sent none. The first case that applies counts:

    - the run was to stop, whoever killed the process: stopped;
    - the worker killed it for another job in the process: the job goes back uncharged, and runs alone after the second time;
    - no process could be forked: the job goes back;
    - the worker killed it, as an earlier job of the process read this one (it never ran) or answered for another: lost, it runs again;
    - the executor killed it at the deadline, or ended after the deadline: the task took too long, it failed by timeout;
    - it died with the whole executor: lost, as nobody knows which job caused that;
    - the worker killed it for its memory, or for an operator: it failed;
    - others ran in its process: each is a suspect, and runs again in a process of half as many jobs, in the end alone;
    - a polite signal while the worker stops: systemd and Heroku signal the whole tree, so the job goes back uncharged;
    - SIGKILL, but not by Fusion: the host did it (OOM killer, operator), so the job is lost and runs again;
    - anything else (SIGSEGV, os._exit, also exit code 0): the task did it, so it failed.
    """
    try:
        return _of_death(run, death, stopping, grace)
    except _UNREADABLE as error:
        return _corrupt(error)


def _of_death(run: Run, death: Death, stopping: bool, grace: float) -> Decision:
    fields, cause = run.claimed.fields, run.killed
    if cause is KillCause.STOPPED:
        return NOT_BEGUN
    if run.stopping:
        return Decision("stopped", _how_it_went(death, grace), attempt=_attempt(death))
    if cause is KillCause.DISPLACED:
        return _displaced(fields, death)
    if cause is KillCause.NO_PROCESS:
        return Decision("release", "no process could be forked")
    if cause is KillCause.STOLEN:
        return Decision("struck", "an earlier job of its process had read it there")
    if death.timed_out or cause is KillCause.TIMEOUT:
        over = run.detail or sentences.GRACE.format(s=f"{grace:g}")
        why = f"{sentences.TIMED_OUT.format(s=f'{run.limit - grace:g}')} {over}"
        return died(fields, why, "fusion.exceptions.JobTimeoutException", _attempt(death))
    if death.status is None:
        return Decision("struck", "the fork server died with the job's process")
    what = describe_death(death.status)
    if death.suspect and not _is_polite(death.status, stopping):
        most = _halved(death.crowd)
        how = f"they run again, {most} at most in a process" if most > 1 else "each runs again in one of its own"
        why = f"its process was {what}, and which of its jobs did that nobody knows: {how}"
        return Decision("suspect", why, fields={"suspect": str(most)}, attempt=_attempt(death))
    if death.killed and cause is KillCause.MEMORY:
        return died(fields, f"its processes {run.detail} and were killed", "fusion.exceptions.JobMemoryExceeded", _attempt(death))
    if death.killed:
        broken = cause is KillCause.BROKEN
        why = (
            "its process broke off its answer and was killed" if broken else f"killed by {cause.value if cause else 'the worker'}"
        )
        return died(fields, why, attempt=_attempt(death))
    peak = f" {sentences.PEAK.format(n=f'{death.maxrss / 1024:.0f}')}"
    if os.WIFSIGNALED(death.status):
        number = os.WTERMSIG(death.status)
        if _is_polite(death.status, stopping):
            return Decision("release", f"its process was {what} while the worker stopped", fields=BEGUN, attempt=_attempt(death))
        if number == signal.SIGKILL or number in _POLITE:
            hint = "; the OOM killer, or a person" if number == signal.SIGKILL else ""
            return Decision("lost", f"work-horse {what}, not by Fusion{hint}{peak}", attempt=_attempt(death))
    return died(fields, f"work-horse {what}{peak}", attempt=_attempt(death))


def _peak(run: Run, frame: Mapping[bytes, bytes]) -> int:
    """Return the most bytes of memory that the run's process held while it ran; 0 if nobody knows.

    `frame` has the peak of the process. That never falls: one that did not grow is of an earlier run.
    """
    return 0 if run.peak_before in (None, frame.get(b"maxrss")) else readings.peak(frame)


def _cut_short(run: Run, death: Death) -> str:
    """Return the error of a callback or hook that was cut short."""
    if death.timed_out or run.killed is KillCause.TIMEOUT:
        return "fusion.exceptions.JobTimeoutException: it did not end within its time, and was killed with its process"
    if run.killed is KillCause.DISPLACED:
        why = "its process was killed for another job in it"
    elif run.killed is KillCause.COLD:
        why = "its process was killed as its worker ended"
    elif run.killed is not None:
        why = f"its process was killed: {run.detail or run.killed.value}"
    elif death.status is None:
        why = "the fork server died with its process"
    elif os.WIFSIGNALED(death.status):
        why = f"its process was {describe_death(death.status)}"
    else:
        why = f"its process exited with code {os.waitstatus_to_exitcode(death.status)}"
    return f"fusion.exceptions.WorkHorseTerminated: {why}"


def _halved(crowd: int) -> int:
    """Return how many suspects may share a process next."""
    return max(1, min(crowd // 2, MOST_SUSPECTS))


def _displaced(fields: Mapping[bytes, bytes], death: Death) -> Decision:
    """Return the outcome of a run killed for another job in its process.

    The first time it shares a process again. The second time it runs alone: otherwise a job longer than the neighbours' grace might never
    end.
    """
    again = b"suspect" in fields
    after = "; it runs in one of its own next" if again else ""
    why = f"its process was killed for another job in it{after}"
    return Decision("displaced", why, fields={"suspect": "1" if again else "0"}, attempt=_attempt(death))


def _is_polite(status: int, stopping: bool) -> bool:
    """Return True if the process died of a signal that also stops the worker."""
    return stopping and os.WIFSIGNALED(status) and os.WTERMSIG(status) in _POLITE


def _how_it_went(death: Death, grace: float) -> str:
    if death.killed or death.timed_out:
        return f"did not end within {grace:g} s grace and was killed"
    return f"its process {'was gone' if death.status is None else describe_death(death.status)}"


def _corrupt(error: Exception, exc_info: bytes = b"") -> Decision:
    """Return the failure of a job with a field, such as its retry policy, that can't be read. `exc_info`: of its task, if that failed."""
    why = f"corrupt: a field of the job can't be read: {type(error).__name__}: {error}"
    told = exc_info + b"\n" + why.encode("utf-8", "replace") if exc_info else why
    shown = f"corrupt: a field of the job can't be read: {type(error).__name__}"
    return Decision("failed", why, fields={"exc_info": told, "reason": why}, shown=shown)


def struck(decision: Decision) -> Decision:
    """Replace a failure during a stop of the whole tree: the job is lost. It is counted, so that a job that stops its worker ends some
    day."""
    return Decision("struck", f"it failed as its processes were signaled with its worker: {decision.shown}")


def no_time_limit(error: ValueError) -> Decision:
    """Return the failure of a job whose timeout is not a number of seconds."""
    why = f"corrupt: {error}"
    return Decision(
        "failed", why, fields={"exc_info": why, "reason": why}, shown="corrupt: its timeout is not a number of seconds"
    )


def _attempt(death: Death) -> dict[str, int | bool]:
    """Return the facts about a death, for the job's history.

    `oom`: SIGKILL that Fusion did not send. The kernel sends it when memory is short, so it is likely, not certain.
    """
    if death.status is None:
        return {}
    if not os.WIFSIGNALED(death.status):
        return {"exit_code": os.waitstatus_to_exitcode(death.status), "maxrss": death.maxrss}
    number = os.WTERMSIG(death.status)
    known: dict[str, int | bool] = {"signal": number, "maxrss": death.maxrss}
    if number == signal.SIGKILL and not (death.killed or death.timed_out):
        known["oom"] = True
    return known
