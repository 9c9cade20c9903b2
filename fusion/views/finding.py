"""A finding of `doctor`, as every interface shows it, with the API calls that fix it, if there are any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from fusion.views.base import View, part, public, view

if TYPE_CHECKING:
    from typing import Self

    from fusion.doctor.finding import Finding, Remedy
    from fusion.doctor.verdict import Verdict

_Call = tuple[str, dict[str, Any]]


@part
class CallView(View):
    """A call of the API."""

    method: Literal["POST"] = public("Its method.")
    path: str = public("Its path.")
    body: dict[str, Any] = public("Its body.")


@part
class MendView(View):
    """A fix of a finding by API calls."""

    label: str = public("The label of its button.")
    scope: Literal["operate", "admin"] = public("The scope that it needs.")
    calls: list[CallView] = public("The calls to make, one after another.")

    @classmethod
    def of(cls, remedy: Remedy) -> Self:
        """Make the view of a remedy."""
        label, scope, calls = _DEEDS[remedy.deed](*remedy.names)
        made = [CallView(method="POST", path=f"/api/v1/{path}", body=body) for path, body in calls]
        return cls(label=label, scope=scope, calls=made)


@part
class FindingView(View):
    """A finding of a check."""

    code: str = public("Its stable code: docs/errors.md describes each.")
    level: Literal["note", "warn", "fail"] = public("`fail`: act now; `warn`: act soon; `note`: good to know.")
    check: str = public("The check.")
    about: str = public("The queue, worker, sink ... that it is about; empty for all of them.")
    what: str = public("A sentence with the cause.")
    fix: list[str] = public("How to fix it: the command first.")
    mend: MendView | None = public("The fix by API calls; null where only the commands of `fix` help.")

    @classmethod
    def of(cls, one: Finding) -> Self:
        """Make the view of a finding."""
        mend = MendView.of(one.remedy) if one.remedy else None
        return cls(
            code=one.code, level=one.level, check=one.check, about=one.about, what=one.what, fix=one.fix.split("\n"), mend=mend
        )


@part
class VerdictView(View):
    """The verdict on the health of a fleet, with its causes."""

    verdict: Literal["healthy", "strained", "unhealthy"] = public("`strained`: a person is needed soon; `unhealthy`: now.")
    ended_per_minute: float = public("Jobs that ended, in the last ten minutes.", unit="jobs a minute")
    causes: list[FindingView] = public("Findings that need a person, the worst first.")

    @classmethod
    def of(cls, found: Verdict, **more: Any) -> Self:
        """Make the view of a verdict. `more`: the fields of a larger view."""
        causes = [FindingView.of(one) for one in found.causes]
        return cls(verdict=found.word, ended_per_minute=found.rate, causes=causes, **more)


@view
class DoctorView(VerdictView):
    """The verdict with all that was found."""

    checks: list[str] = public("The checks that were made.")
    findings: list[FindingView] = public("All that was found, the worst first.")

    @classmethod
    def of_all(cls, found: Verdict, checks: Sequence[str]) -> Self:
        """Make the view of a verdict and of all findings."""
        return cls.of(found, checks=list(checks), findings=[FindingView.of(one) for one in found.findings])


_Scope = Literal["operate", "admin"]
_Mend = tuple[str, _Scope, list[_Call]]


def _release(key: str, *jobs: str) -> _Mend:
    return f"Release {key} of {', '.join(jobs)}", "admin", [(f"keys/{quote(key)}/release", {"job_id": job}) for job in jobs]


def _unquiet(*workers: str) -> _Mend:
    return f"Unquiet {', '.join(workers)}", "admin", [(f"workers/{_path(name)}/unquiet", {}) for name in workers]


def _retry(*deliveries: str) -> _Mend:
    told = "1 callback" if len(deliveries) == 1 else f"{len(deliveries)} callbacks"
    return f"Retry {told}", "operate", [(f"callbacks/{_path(one)}/retry", {}) for one in deliveries]


def _quarantine(job: str) -> _Mend:
    body = {"action": "quarantine", "query": f"state:failed id:{job}", "reason": "takes its process down"}
    return f"Quarantine {job}", "operate", [("operations", body)]


def _path(name: str) -> str:
    return quote(name, safe="")


#: For each deed: the label of its button, the scope, the calls.
_DEEDS: dict[str, Callable[..., _Mend]] = {
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
