"""Mistakes about failure groups."""

from __future__ import annotations

from tests.faults.teeth.edits import LUA, Edit, a_mutant

_GROUPS = LUA + "include/failures/failures.lua"
_OUT = "store/test_failure_groups.py::test_whatever_takes_a_failed_job_away_takes_it_out_of_its_group"

OF_FAILURES = (
    a_mutant(
        "group1",
        "a failed job that is put back counts in its group for good",
        f"{_OUT}[_requeued-False]",
        Edit(LUA + "requeue.lua", "  if status == 'failed' then pcall(leave_failure, id, key) end", ""),
    ),
    a_mutant(
        "group2",
        "a failed job whose id is used again counts in its group for good",
        f"{_OUT}[_a_new_life-True]",
        Edit(LUA + "include/job/accept.lua", "    if ended == FAILED then pcall(leave_failure, id, key) end\n", ""),
    ),
    a_mutant(
        "group3",
        "a key of groups that holds something else keeps a job from failing",
        "store/test_failure_groups.py::test_a_broken_key_fails_no_end",
        Edit(LUA + "include/job/end_job.lua", "  pcall(join_failure, id, key)\n", "  join_failure(id, key)\n"),
    ),
    a_mutant(
        "group4",
        "jobs that failed before an upgrade are never counted",
        "store/test_failure_audit.py::test_jobs_that_failed_before_get_their_groups",
        Edit(LUA + "include/failures/audit_failures.lua", "  join_failure(id, key, ms_of_iso(job[5]))\n", ""),
    ),
    a_mutant(
        "group5",
        "who may see one queue alone is told how many of another failed",
        "web/test_failures.py::test_groups_and_one_of_them",
        Edit(
            "fusion/web/failures.py",
            "        since = _since(request, now)\n        if request.scope.all and ",
            "        since = _since(request, now)\n        if ",
        ),
    ),
)
