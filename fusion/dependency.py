"""Dependencies: the jobs that a job waits for, and what happens to it if one of them does not finish."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from fusion.exceptions import OptionError
from fusion.store.layout.names import check_job_id

#: Policy -> what stands before a parent's id in the job's record.
SIGNS = {"fail": "", "ignore": "?", "wait": "~"}
_RULE = "use a job, its id, what prepare_data returned, a Dependency, or a list of these"


class JobLike(Protocol):
    """A Job, or anything else that has a job's id."""

    @property
    def id(self) -> str:
        """The job's id."""


class PreparedLike(Protocol):
    """The value that `Queue.prepare_data` returned."""

    @property
    def new(self) -> JobLike:
        """The job that it is to become."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """Jobs to wait for: `enqueue(..., depends_on=Dependency(jobs=[a, b], allow_failure=True))`.

    `on_failure` decides what happens to the waiting job if one of these ends without finishing. With "fail" (the default) it fails, too. With
    "ignore", for which `allow_failure=True` is another name, that one counts as finished. With "wait" it waits until that one is requeued and
    finishes. `enqueue_at_front`: once it waits for nothing, it goes before the others of its priority. Raises OptionError.
    """

    jobs: JobLike | PreparedLike | str | Iterable[JobLike | PreparedLike | str]
    allow_failure: bool = False
    enqueue_at_front: bool = False
    on_failure: Literal["fail", "ignore", "wait"] | None = None

    def __post_init__(self) -> None:
        if self.on_failure not in (None, *SIGNS):
            raise OptionError("on_failure", "use 'fail', 'ignore' or 'wait'", self.on_failure)
        if self.allow_failure and self.on_failure not in (None, "ignore"):
            raise OptionError("on_failure", "allow_failure=True says 'ignore'; give one of the two", self.on_failure)
        if not isinstance(self.jobs, str) and isinstance(self.jobs, Iterable):
            object.__setattr__(self, "jobs", tuple(self.jobs))
        if not members(self):
            raise OptionError("depends_on", "a Dependency names a job at least")

    @property
    def policy(self) -> str:
        """`fail`, `ignore` or `wait`."""
        return self.on_failure or ("ignore" if self.allow_failure else "fail")


def parents(name: str, value: Any) -> str | None:
    """Return the parents in the form that a job's record stores; None for none. OptionError."""
    found = members(value)
    return json.dumps(found, separators=(",", ":")) if found else None


def at_front(value: Any) -> bool:
    """Return True if one of the Dependencies has `enqueue_at_front`."""
    listed = value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(one, Dependency) and one.enqueue_at_front for one in listed)


def members(value: Any) -> list[str]:
    """Return the parents' ids, each once, with the sign of its policy in front. If a parent is named twice, the last policy holds."""
    found: dict[str, str] = {}
    for one in _flat(value):
        for job in _flat(one.jobs) if isinstance(one, Dependency) else (one,):
            job_id = _id_of(job)
            found.pop(job_id, None)
            found[job_id] = SIGNS[one.policy] if isinstance(one, Dependency) else ""
    return [sign + job_id for job_id, sign in found.items()]


def _flat(value: Any) -> Iterable[Any]:
    if value is None:
        return ()
    if isinstance(value, (str, Dependency)) or hasattr(value, "id") or hasattr(value, "new"):
        return (value,)
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return value
    raise OptionError("depends_on", _RULE, value)


def _id_of(job: Any) -> str:
    found = getattr(job, "new", job)  # of a JobData
    job_id = found if isinstance(found, str) else getattr(found, "id", None)
    if not isinstance(job_id, str):
        raise OptionError("depends_on", _RULE, job)
    try:
        return check_job_id(job_id)
    except ValueError as error:
        raise OptionError("depends_on", str(error), job_id) from None
