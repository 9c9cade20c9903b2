"""What the death of a horse without an outcome means for its job."""

from __future__ import annotations

import os
import signal
from time import monotonic

from fusion.execution.completion import Decision, died
from fusion.process.forkserver_client import describe_death
from fusion.process.messages import HorseExited
from fusion.process.stable import Run

_POLITE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def decide(run: Run, exited: HorseExited | None, *, stopping: bool, grace: float) -> Decision:
    """Told apart by who killed it.

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
