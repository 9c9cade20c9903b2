"""Mistakes about long jobs, their progress, their cursors and their ends, and about processes that are long in getting ready."""

from __future__ import annotations

from tests.faults.teeth.edits import INCLUDE, LUA, Edit, a_mutant

_STEPS, _REPORT = "fusion/execution/steps.py", LUA + "report.lua"
_COUNTED = """            yield item
            done += 1
            self.checkpoint(done, wait=False)
"""
_LATE = """            done += 1
            self.checkpoint(done, wait=False)
            yield item
"""
_STOP = "worker/test_steps.py::test_a_warm_stop_ends_a_loop_after_its_step_and_another_worker_goes_on"
_GIVE_WAY = "        if job.steps is not None and job.steps.interrupted and _is_interrupted(error):\n"
_WAIT = '            if not self._line.wait_for(b"stored", number):\n                self._interrupt()'

OF_LONG = (
    a_mutant(
        "long1",
        "a process that lost its job goes on writing where it is",
        "store/test_report.py::test_only_the_execution_that_holds_the_job_says_something",
        Edit(_REPORT, "  if status ~= 'started' or holder ~= exec then return 'stale' end\n", ""),
    ),
    a_mutant(
        "long2",
        "a job of days fails as a poison pill at its fifth deploy, however far it gets",
        "store/test_report.py::test_a_cursor_that_moved_ends_the_count_of_losses",
        Edit(_REPORT, "{ 'cursor', cursor, 'lost', 0 }", "{ 'cursor', cursor }"),
    ),
    a_mutant(
        "long3",
        "no job hears of a warm stop",
        f"{_STOP}[fork]",
        Edit("fusion/executors/fork.py", "            run.horse.finish()\n", "            pass\n"),
    ),
    a_mutant(
        "long4",
        "what a job said last is lost with its end",
        "worker/test_steps.py::test_a_failed_run_leaves_its_exact_cursor_to_the_retry",
        Edit("fusion/execution/perform.py", "            answer |= job.steps.unsent()\n", "            job.steps.unsent()\n"),
    ),
    a_mutant(
        "long5",
        "a step counts as done before it is",
        "worker/test_steps.py::test_a_failed_run_leaves_its_exact_cursor_to_the_retry",
        Edit(_STEPS, _COUNTED, _LATE),
    ),
    a_mutant(
        "long6",
        "a job that gave way to a stop has failed",
        f"{_STOP}[fork]",
        Edit("fusion/execution/perform.py", _GIVE_WAY, "        if False:\n"),
    ),
    a_mutant(
        "long7",
        "a window of retries begins anew with each failure",
        "store/test_retry_within.py::test_it_counts_from_the_first_failure",
        Edit(INCLUDE + "commit.lua", "  if not since then more[#more + 1]", "  if true then more[#more + 1]"),
    ),
    a_mutant(
        "long8",
        "a checkpoint that waits does not",
        "worker/test_steps.py::test_it_waits_for_a_worker_that_stands_still",
        Edit(_STEPS, _WAIT, _WAIT.replace('not self._line.wait_for(b"stored", number)', "False")),
    ),
    a_mutant(
        "long9",
        "what a job said last is lost with its process",
        "worker/test_progress.py::test_what_it_said_last_survives_its_end[tells_then_dies]",
        Edit("fusion/worker/outcomes.py", "            if said:\n", "            if False:\n"),
    ),
    a_mutant(
        "long10",
        "a job's time runs while its process still imports",
        "executors/test_generations.py::test_a_process_that_imports_by_itself_gets_a_job_once_it_has",
        Edit("fusion/executors/fork.py", "            if self._by_horses:\n", "            if False:\n"),
    ),
)
