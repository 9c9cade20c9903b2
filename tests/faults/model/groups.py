"""Failure groups after a call: they say what the failed jobs say, job by job and counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from hashlib import sha1
from typing import Any

from tests.faults.model.scripts import Snapshot

_KEPT = "rq:failure:"


def check_groups(seen: Snapshot) -> None:
    """Assert that each failed job stands in the one group of its error and place, and that nothing else stands in any."""
    keys = seen.keys
    listed, empty = keys.get("rq:failures", {}), keys.get("rq:failures:empty", {})
    jobs: dict[str, set[str]] = defaultdict(set)
    queues: dict[str, Counter[str]] = defaultdict(Counter)
    quarantined = Counter[str]()
    for job_id in keys.get("rq:queue:failed", {}):
        job = keys[f"rq:job:{job_id}"]
        group = _group_of(job)
        assert job.get("failure_group") == group, f"{job_id} names the group {job.get('failure_group')}, not {group}"
        jobs[group].add(job_id)
        queues[group][job.get("original_queue") or job["origin"]] += 1
        quarantined[group] += "quarantined" in job
    for key, job in keys.items():
        if key.startswith("rq:job:") and key.count(":") == 2 and job.get("failure_group"):
            assert key.removeprefix("rq:job:") in jobs[job["failure_group"]], f"{key} has not failed, and names a group"
    assert set(jobs) - set(listed) == set(), "groups that are in no list"
    assert {group for group in listed if not jobs[group]} == set(empty), "the list of those that hold no job"
    for group in listed:
        about: dict[str, Any] = keys[f"{_KEPT}{group}"]
        members = set(keys.get(f"{_KEPT}{group}:jobs", {}))
        assert members == jobs[group], f"{group} holds {members}, not {jobs[group]}"
        counted = keys.get(f"{_KEPT}{group}:queues", {})
        assert counted == queues[group], f"{group} counts {counted}, not {queues[group]}"
        assert int(about.get("quarantined", 0)) == quarantined[group], f"{group} counts the quarantined"
        assert about.get("example", "") in (members or {""}), f"the example of {group}"
        assert float(about["last"]) == listed[group], f"when something failed last in {group}"
        assert int(about["total"]) >= len(members), f"{group} had more than it counts"
    known = {group: {"", ":jobs", ":queues"} for group in listed}
    for key in keys:
        if key.startswith(_KEPT):
            group, colon, what = key.removeprefix(_KEPT).partition(":")
            assert what.isdecimal() or colon + what in known.get(group, ()), f"{key} is of no group"


def _group_of(job: dict[str, str]) -> str:
    """By the class of the error and where it was raised, else by the function that it calls."""
    error = job.get("error_class") or job.get("reason", "").partition(":")[0] or "unknown"
    place = job.get("error_frame", "").rpartition(":")[0] or job.get("func", "")
    return sha1(f"{error}\n{place}".encode()).hexdigest()[:12]
