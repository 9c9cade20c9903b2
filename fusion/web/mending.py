"""What `doctor` finds as the API shows it: with the calls that mend it, where the API can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from fusion.doctor.finding import Finding, Remedy
from fusion.doctor.verdict import Verdict

_Call = tuple[str, dict[str, Any]]


def finding_view(one: Finding) -> dict[str, Any]:
    """A finding. `mend`: what to call it on a button, the scope that it needs, and the calls to make one after another; null where only the
    commands of `fix` help."""
    return {**one.document(), "mend": one.remedy and _mend(one.remedy)}


def verdict_view(found: Verdict) -> dict[str, Any]:
    """The verdict with its causes."""
    return {**found.document(), "causes": [finding_view(one) for one in found.causes]}


def _mend(remedy: Remedy) -> dict[str, Any]:
    label, scope, calls = _DEEDS[remedy.deed](*remedy.names)
    made = [{"method": "POST", "path": f"/api/v1/{path}", "body": body} for path, body in calls]
    return {"label": label, "scope": scope, "calls": made}


def _release(key: str, *jobs: str) -> tuple[str, str, list[_Call]]:
    return f"Release {key} of {', '.join(jobs)}", "admin", [(f"keys/{quote(key)}/release", {"job_id": job}) for job in jobs]


def _unquiet(*workers: str) -> tuple[str, str, list[_Call]]:
    return f"Unquiet {', '.join(workers)}", "admin", [(f"workers/{_path(name)}/unquiet", {}) for name in workers]


def _retry(*deliveries: str) -> tuple[str, str, list[_Call]]:
    told = "1 callback" if len(deliveries) == 1 else f"{len(deliveries)} callbacks"
    return f"Retry {told}", "operate", [(f"callbacks/{_path(one)}/retry", {}) for one in deliveries]


def _quarantine(job: str) -> tuple[str, str, list[_Call]]:
    body = {"action": "quarantine", "query": f"state:failed id:{job}", "reason": "takes its process down"}
    return f"Quarantine {job}", "operate", [("operations", body)]


def _path(name: str) -> str:
    return quote(name, safe="")


#: By deed: the words on its button, the scope, the calls.
_DEEDS: dict[str, Callable[..., tuple[str, str, list[_Call]]]] = {
    "resume_queue": lambda queue: (f"Resume {queue}", "admin", [(f"queues/{_path(queue)}/resume", {})]),
    "resume_fleet": lambda: ("Resume the fleet", "admin", [("fleet/resume", {})]),
    "unquiet": _unquiet,
    "stop": lambda job: (f"Stop {job}", "operate", [(f"jobs/{_path(job)}/stop", {})]),
    "cancel": lambda job: (f"Cancel {job}", "operate", [(f"jobs/{_path(job)}/cancel", {})]),
    "release": _release,
    "requeue": lambda query: ("Requeue them", "operate", [("operations", {"action": "requeue", "query": query})]),
    "quarantine": _quarantine,
    "run_entry": lambda entry: (f"Run {entry} now", "operate", [(f"cron/{_path(entry)}/run", {})]),
    "retry_callbacks": _retry,
}
