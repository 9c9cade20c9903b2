"""RQ's `Dependency`: the jobs that a job waits for. One that fails leaves its children waiting, as in RQ, until it is requeued and finishes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import fusion.dependency
from fusion.rq.hints import missing


class Dependency:
    """Jobs to wait for: Job objects, ids, or a list of both. `allow_failure`: one that failed counts as finished."""

    def __init__(self, jobs: Any, allow_failure: bool = False, enqueue_at_front: bool = False) -> None:
        listed = _listed(jobs)
        for one in listed:
            if one:
                _id_of(one)
        if not listed:
            raise ValueError("jobs: cannot be empty.")
        self.dependencies = listed
        self.allow_failure, self.enqueue_at_front = allow_failure, enqueue_at_front


def _id_of(job: Any) -> str:
    found = job if isinstance(job, str) else getattr(job, "id", None)
    if not isinstance(found, str):
        raise ValueError("jobs: must contain objects of type Job and/or strings representing Job ids")
    return found


def _listed(jobs: Any) -> list[Any]:
    if isinstance(jobs, Iterable) and not isinstance(jobs, (str, bytes)) and not hasattr(jobs, "id"):
        return list(jobs)
    return [jobs]


class Parents:
    """All that `depends_on=` names: the ids, whether failures are allowed (for all if one of them allows it), the place of the job."""

    def __init__(self, depends_on: Any) -> None:
        self.ids: list[str] = []
        self.allow_failure = self.at_front = False
        for one in _listed(depends_on) if depends_on is not None else []:
            if isinstance(one, Dependency):
                self.allow_failure |= one.allow_failure
                self.at_front |= one.enqueue_at_front
            for job in one.dependencies if isinstance(one, Dependency) else [one]:
                found = _id_of(job)
                if found not in self.ids:
                    self.ids.append(found)

    def core(self) -> fusion.dependency.Dependency | None:
        """Return the same for Fusion's core; None without parents."""
        if not self.ids:
            return None
        policy: Any = "ignore" if self.allow_failure else "wait"
        return fusion.dependency.Dependency(self.ids, on_failure=policy, enqueue_at_front=self.at_front)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
