"""What an outcome means for the job: the one place where finish, retry and failure are told apart. Runs in the worker; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fusion import defaults
from fusion.retry import DEFAULT, Retry

#: What an outcome frame may add to the job's hash as it is.
_KEPT = (b"result_error", b"meta", b"callback_error")


@dataclass(frozen=True, slots=True)
class Decision:
    """A kind of commit (see `turn.lua`) with the hash fields that go with it. `delay` in seconds, `reason` one line for people."""

    kind: str
    reason: str = ""
    delay: float = 0.0
    fields: Mapping[str, bytes | str | int] = field(default_factory=dict)


def decide(job: Mapping[bytes, bytes], outcome: Mapping[bytes, bytes]) -> Decision:
    """From a job's hash fields and an outcome frame (docs: `execution.outcome`) to what is committed."""
    kind = outcome.get(b"kind")
    fields: dict[str, bytes | str | int] = {name.decode(): outcome[name] for name in _KEPT if name in outcome}
    if kind == b"finished":
        if b"result" in outcome:
            fields["result"] = outcome[b"result"]
        return Decision("finished", fields=fields)
    reason = outcome.get(b"exc_line", b"").decode("utf-8", "replace")
    fields["exc_info"] = outcome.get(b"exc_info", b"") or reason
    if kind == b"held":
        return Decision("held", reason, defaults.HOLD_INTERVAL, fields)
    return _failed(job, fields, reason, outcome.get(b"exc_classes", b"").decode("utf-8", "replace").split("\n"))


def died(job: Mapping[bytes, bytes], why: str, class_name: str = "fusion.exceptions.WorkHorseTerminated") -> Decision:
    """The failure of a job whose process ended without an outcome, or had to be killed."""
    line = f"{class_name}: {why}"
    return _failed(job, {"exc_info": line}, line, [class_name, "builtins.Exception"])


def _failed(job: Mapping[bytes, bytes], fields: dict[str, bytes | str | int], reason: str, classes: list[str]) -> Decision:
    raw = job.get(b"retry")
    policy = Retry.from_json(raw) if raw else DEFAULT
    count = int(job.get(b"retryCount") or defaults.RETRY_COUNT_START)
    done = count - defaults.RETRY_COUNT_START
    if done >= policy.max or not policy.covers(classes):
        return Decision("failed", reason, fields={**fields, "reason": reason})
    fields["retryCount"] = count + 1
    if policy.place == "back":
        fields["seq"] = ""  # promote gives it a new one
    return Decision("retry", reason, policy.delay(done), fields)
