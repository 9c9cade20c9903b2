"""Turns an outcome into a decision: only here are finish, retry and failure distinguished. Pure functions that run in the worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from fusion import exceptions
from fusion.kernel import defaults
from fusion.retry import DEFAULT, RATE_LIMITED, RETRY_LATER, Retry, bounded, retries_done

#: Fields of an outcome frame that go into the job's hash unchanged.
_KEPT = {name.encode(): name for name in ("result_error", "meta", "callback_error", "progress", "cursor")}
_LONGEST = {"progress": 4096, "cursor": defaults.MAX_CURSOR}
#: Why a job goes back that gave way to its worker's end.
INTERRUPTED = "it gave way to the end of its worker, and goes on at its cursor"
#: Why a job goes back whose tasks another job cancelled.
REACHED = "another job of its process cancelled its tasks"
#: Sent with the release of a run that had begun: only a limited number in a row is uncharged. It is not stored in the job's hash.
BEGUN = {"spared": "1"}
#: None as JSON, and as a pickle.
_NONE = (b"null", b"\x80\x04N.")
#: Base classes that say nothing about an error.
_ROOTS = ("builtins.Exception", "builtins.BaseException")


@dataclass(slots=True)
class Decision:
    """A kind of commit (see `turn.lua`) with the hash fields that go with it. `delay` in seconds, `reason` one line for people.

    `attempt`: facts about an execution that did not finish, for the job's history. `shown`: the text for logs in place of `reason`, if
    `reason` contains foreign text. Do not change a decision, see `NewJob`.
    """

    kind: str
    reason: str = ""
    delay: float = 0.0
    fields: Mapping[str, bytes | str | int] = field(default_factory=dict)
    attempt: Mapping[str, int | bool] = field(default_factory=dict)
    shown: str = ""


def decide(job: Mapping[bytes, bytes], outcome: Mapping[bytes, bytes]) -> Decision:
    """Decide what to commit, from a job's hash fields and an outcome frame (docs: `execution.outcome`)."""
    kind = outcome.get(b"kind")
    fields = kept(outcome)
    if kind == b"interrupted":
        return Decision("release", INTERRUPTED, fields={**fields, **BEGUN})
    if kind == b"displaced":
        return Decision("displaced", REACHED, fields={**fields, "suspect": "1" if b"suspect" in job else "0"})
    if kind == b"finished":
        if b"result" in outcome:
            fields["result"] = outcome[b"result"]
        fields.pop("cursor", None)  # the next run, if there is one, begins anew
        return _repeated(job, fields) if b"repeats_left" in job else Decision("finished", fields=fields)
    reason = outcome.get(b"exc_line", b"").decode("utf-8", "replace")
    fields["exc_info"] = outcome.get(b"exc_info", b"") or reason
    if kind == b"stopped":
        return Decision("stopped", reason, fields=fields, shown="JobStopped")
    if kind == b"held":
        fields["task"] = outcome.get(b"task", b"").decode("utf-8", "replace")
        return Decision("held", reason, defaults.HOLD_INTERVAL, fields)
    classes = outcome.get(b"exc_classes", b"").decode("utf-8", "replace").split("\n")
    if outcome.get(b"error_frame"):
        fields["error_frame"] = outcome[b"error_frame"]
    peak = bounded(outcome.get(b"maxrss"), float(2**53))
    asked = bounded(outcome.get(b"retry_after"), defaults.RETRY_ASKED_CAP)
    own, *members = [chain.split("\n") for chain in outcome.get(b"exc_group", b"").decode("utf-8", "replace").split("\n\n")]
    if asked and all(chain[0] == RATE_LIMITED for chain in members or [classes]):
        del fields["exc_info"]
        return Decision("limited", reason, asked, fields)
    wanted = outcome.get(b"retry")
    policy = Retry.from_json(wanted) if wanted else _policy(job)
    attempt = {"maxrss": int(peak)} if peak else {}
    if members:
        covered = policy.covers(own) or all(_is_retried(policy, chain) for chain in members)
    else:
        covered = bool(wanted) or RETRY_LATER in classes or policy.covers(classes)
    decision = _failed(job, fields, reason, classes, policy, covered, asked, attempt)
    return replace(decision, shown=_shown(classes[0], outcome.get(b"error_frame", b"")))


def _repeated(job: Mapping[bytes, bytes], fields: dict[str, bytes | str | int]) -> Decision:
    """Return the end of a run that finished, of a job with `repeats_left`. As in RQ the first interval is the next one, and the last of them
    stays."""
    # None is not sent, and would leave what an earlier run returned
    fields.setdefault("result", _NONE[job.get(b"serializer") == b"pickle"])
    left = int(job[b"repeats_left"])
    if left <= 0:
        return Decision("finished", fields=fields)
    first, *others = json.loads(job.get(b"repeat_intervals") or b"[0]")
    delay = min(max(0.0, float(first)), defaults.FURTHEST)
    return Decision(
        "repeat", delay=delay, fields={**fields, "repeats_left": left - 1, "repeat_intervals": json.dumps(others or [first])}
    )


def _is_retried(policy: Retry, classes: list[str]) -> bool:
    """Return True if an error of a group would be retried alone: by the policy, or because it asks for that."""
    return not {RETRY_LATER, RATE_LIMITED}.isdisjoint(classes) or policy.covers(classes)


def kept(outcome: Mapping[bytes, bytes]) -> dict[str, bytes | str | int]:
    """Return the fields of a frame that go into the job's hash unchanged. Drop those that are too long: a task may have written the
    frame."""
    found: dict[str, bytes | str | int] = {}
    for key, name in _KEPT.items():
        if key in outcome and len(outcome[key]) <= _LONGEST.get(name, inf):
            found[name] = outcome[key]
    return found


def _shown(error_class: str, frame: bytes) -> str:
    """Return the error without its message, which may contain the task's arguments."""
    name = error_class.removeprefix("builtins.")
    return f"{name} at {frame.decode('utf-8', 'replace')}" if frame else name


def died(
    job: Mapping[bytes, bytes],
    why: str,
    class_name: str = "fusion.exceptions.WorkHorseTerminated",
    attempt: Mapping[str, int | bool] | None = None,
) -> Decision:
    """Return the failure of a job whose process ended without an outcome, or was killed."""
    code: str = getattr(exceptions, class_name.rpartition(".")[2]).code
    line, classes, policy = f"{class_name}: {exceptions.coded(why, code)}", [class_name, "builtins.Exception"], _policy(job)
    return _failed(job, {"exc_info": line}, line, classes, policy, policy.covers(classes), attempt=attempt or {})


def _policy(job: Mapping[bytes, bytes]) -> Retry:
    raw = job.get(b"retry")
    return Retry.from_json(raw) if raw else DEFAULT


def _failed(
    job: Mapping[bytes, bytes],
    fields: dict[str, bytes | str | int],
    reason: str,
    classes: list[str],
    policy: Retry,
    covered: bool,
    asked: float | None = None,
    attempt: Mapping[str, int | bool] | None = None,
) -> Decision:
    """Return a retry or a failure. `covered`: the error may be retried. `asked`: the delay that the task or its error asked for."""
    fields["error_class"] = classes[0]
    if bases := [name for name in classes[1:] if name not in _ROOTS]:
        fields["error_bases"] = "\n".join(bases)
    done = retries_done(job.get(b"retryCount"))
    if done >= policy.max or not covered:
        return Decision("failed", reason, fields={**fields, "reason": reason}, attempt=attempt or {})
    fields["retryCount"] = defaults.RETRY_COUNT_START + done + 1
    if policy.within is not None:
        fields["within"] = round(policy.within * 1000)
    if policy.keep_slot:
        fields["keep_slot"] = "1"
    if policy.place == "back":
        fields["seq"] = ""  # promote gives it a new one
    return Decision("retry", reason, policy.delay(done) if asked is None else asked, fields, attempt or {})
