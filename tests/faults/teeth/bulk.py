"""Mistakes about operations on many jobs."""

from __future__ import annotations

from tests.faults.teeth.edits import LUA, Edit, a_mutant

_COUNT = LUA + "include/operation/count_operation.lua"

OF_BULK = (
    a_mutant(
        "bulk1",
        "an operation takes what failed after it began",
        "store/test_operation_scripts.py::test_jobs_that_fail_after_the_cut_off_are_left_alone",
        Edit(_COUNT, "  return not entered or entered <= cutoff\n", "  return true\n"),
    ),
    a_mutant(
        "bulk2",
        "what one carrier has counted another counts again",
        "store/test_operation_scripts.py::test_refused_and_skipped_jobs_are_counted_once",
        Edit(_COUNT, "      if mark == operation then return COUNTED end\n", ""),
    ),
    a_mutant(
        "bulk3",
        "a carrier that is late sets the walk back",
        "store/test_operation_scripts.py::test_the_cursor_is_compared_and_set",
        Edit(LUA + "advance_operation.lua", " or part ~= A_part then", " then"),
    ),
    a_mutant(
        "bulk4",
        "a walk goes on with the cursor of another server",
        "operations/test_carrier.py::test_another_server_has_other_cursors",
        Edit("fusion/operations/carrier.py", ' or row.get("run_id") != run_id', ""),
    ),
    a_mutant(
        "bulk5",
        "a worker that carries an operation on looks at all jobs of a part, whatever time that takes",
        "operations/test_carrier.py::test_one_whose_time_is_over_goes_on_amid_a_part",
        Edit("fusion/operations/carrier.py", "                if monotonic() > until:\n", "                if not until:\n"),
    ),
)
