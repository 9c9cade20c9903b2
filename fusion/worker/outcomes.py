"""What became of a run, decided: from the outcome its process sent, or from how that process died."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from time import monotonic

from fusion.execution.completion import Decision, decide, died
from fusion.executors.fork import Run
from fusion.forkserver.client import describe_death
from fusion.forkserver.messages import HorseExited

_KINDS = (b"finished", b"failed", b"held")
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, LookupError, RecursionError)
_POLITE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def of_frame(job: Mapping[bytes, bytes], frame: Mapping[bytes, bytes]) -> Decision:
    """What an outcome frame means."""
    if frame.get(b"kind") not in _KINDS:
        return guarded(lambda: died(job, "its process sent something that is no outcome"))
    return guarded(lambda: decide(job, frame), frame.get(b"exc_info", b""))


def of_death(run: Run, exited: HorseExited | None, *, stopping: bool, grace: float) -> Decision:
    """What the death of a process without an outcome means for its job, told apart by who killed it.

    - the fork server or the worker at the deadline, or the fork server's end after it: the task's own doing, it failed by timeout;
    - the worker, for the memory it held: it failed;
    - the worker, since an earlier job of the process read this one, which never ran, or another one's answer came: it is lost and runs again;
    - nobody of us, by SIGKILL: the host's doing (OOM killer, operator), the job is lost and runs again;
    - with the whole fork server: the same, but which of its jobs had a part in that nobody knows;
    - a polite signal while the worker stops: systemd and Heroku signal the whole tree, the job goes back unharmed;
    - anything else (SIGSEGV, os._exit, exit code 0 too): the task's own doing, it failed.
    """
    if run.killed == "fork failed":
        return Decision("release", "no process could be forked")
    if run.killed == "stolen":
        return Decision("struck", "an earlier job of its process had read it there")
    if exited.why == "timeout" or run.killed == "timeout" if exited else monotonic() >= run.horse.deadline:
        why = f"did not end within its timeout of {run.limit - grace:g} s plus {grace:g} s grace and was killed"
        return died(run.claimed.fields, why, "fusion.exceptions.JobTimeoutException", _attempt(exited))
    if exited is None:
        return Decision("struck", "the fork server died with the job's process")
    if exited.why == "killed" and run.killed == "memory":
        why = f"its processes {run.detail} and were killed"
        return died(run.claimed.fields, why, "fusion.exceptions.JobMemoryExceeded", _attempt(exited))
    what = describe_death(exited.status)
    if exited.why == "killed":
        why = "its process broke off its answer and was killed" if run.horse.broken else f"killed by {run.killed or 'the worker'}"
        return died(run.claimed.fields, why, attempt=_attempt(exited))
    peak = f" (peak memory {exited.maxrss / 1024:.0f} MiB)"
    if os.WIFSIGNALED(exited.status):
        number = os.WTERMSIG(exited.status)
        if number in _POLITE and stopping:
            return Decision("release", f"its process was {what} while the worker stopped", attempt=_attempt(exited))
        if number == signal.SIGKILL or number in _POLITE:
            hint = "; the OOM killer, or a person" if number == signal.SIGKILL else ""
            return Decision("lost", f"work-horse {what}, not by Fusion{hint}{peak}", attempt=_attempt(exited))
    return died(run.claimed.fields, f"work-horse {what}{peak}", attempt=_attempt(exited))


def guarded(judge: Callable[[], Decision], exc_info: bytes = b"") -> Decision:
    """What `judge` says; if the job's fields can't be read, say its retry policy, a failure that tells so."""
    try:
        return judge()
    except _UNREADABLE as error:
        why = f"corrupt: a field of the job can't be read: {type(error).__name__}: {error}"
        told = exc_info + b"\n" + why.encode("utf-8", "replace") if exc_info else why
        shown = f"corrupt: a field of the job can't be read: {type(error).__name__}"
        return Decision("failed", why, fields={"exc_info": told, "reason": why}, shown=shown)


def struck(decision: Decision) -> Decision:
    """In place of a failure amid a stop of the whole tree. It counts as lost, so that one which stops its worker itself ends some day."""
    return Decision("struck", f"it failed as its processes were signaled with its worker: {decision.shown}")


def no_time_limit(error: ValueError) -> Decision:
    """What becomes of a job whose timeout is none."""
    why = f"corrupt: {error}"
    return Decision("failed", why, fields={"exc_info": why, "reason": why}, shown="corrupt: its timeout is no number of seconds")


def _attempt(exited: HorseExited | None) -> dict[str, int | bool]:
    """For the job's history. SIGKILL by nobody here: the kernel sends it when memory is short, so `oom` says likely, not certain."""
    if exited is None:
        return {}
    if not os.WIFSIGNALED(exited.status):
        return {"exit_code": os.waitstatus_to_exitcode(exited.status), "maxrss": exited.maxrss}
    number = os.WTERMSIG(exited.status)
    known: dict[str, int | bool] = {"signal": number, "maxrss": exited.maxrss}
    if number == signal.SIGKILL and exited.why == "-":
        known["oom"] = True
    return known
