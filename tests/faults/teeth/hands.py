"""Mistakes about what operators look at and type."""

from __future__ import annotations

from tests.faults.teeth.edits import LUA, Edit, a_mutant

OF_HANDS = (
    a_mutant(
        "hand1",
        "the older of the two samples of a queue's flow is never replaced",
        "store/test_sample.py::test_the_older_sample_is_never_much_older_than_a_minute",
        Edit(LUA + "sample.lua", "    first = last\n", ""),
    ),
    a_mutant(
        "hand2",
        "a shell is offered names that it would take for commands",
        "cli/test_completion.py::test_names_that_a_shell_could_take_for_more_are_not_offered",
        Edit("fusion/cli/candidates.py", " and _SAFE.match(one)", ""),
    ),
    a_mutant(
        "hand3",
        "an edit cuts off the running job",
        "supervisor/test_reloader.py::test_an_edit_is_taken_up_when_the_running_job_is_done",
        Edit("fusion/supervisor/reloader.py", 'self._child.release(float("inf"))  # a job', "self._child.release(0.0)  # a job"),
    ),
)
