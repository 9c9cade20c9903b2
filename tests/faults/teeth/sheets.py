"""Mistakes about what is shown of one job, and about its copies."""

from __future__ import annotations

from tests.faults.teeth.edits import Edit, a_mutant

_SEEN = "        return [one for one in kin if is_seen(one, self.scope)]\n"

OF_SHEETS = (
    a_mutant(
        "sheet1",
        "who may see one queue is told of another's jobs",
        "web/test_job.py::test_jobs_of_other_queues_are_left_out_of_what_is_known_of_one",
        Edit("fusion/jobs/sheet.py", _SEEN, "        return [*kin]\n"),
    ),
    a_mutant(
        "sheet2",
        "a traceback shows what the task was given",
        "domain/test_sheet.py::test_a_masked_value_is_nowhere",
        Edit("fusion/jobs/sheet_texts.py", "masked_text(line.strip(), _LINE, source=source)", "line.strip()"),
    ),
    a_mutant(
        "copy1",
        "a forged job is signed by having it copied",
        "domain/test_copying.py::test_a_copy_is_signed_and_takes_nothing_over_that_is_not",
        Edit("fusion/enqueue/copying.py", "    _check_signature(job_id, row)\n    return row\n", "    return row\n"),
    ),
    a_mutant(
        "copy2",
        "a mask is sent as if it were a value",
        "unit/test_unmasking.py::test_a_mask_that_stands_for_nothing_is_refused[edited0]",
        Edit("fusion/enqueue/unmasking.py", "if MASK in value or ", "if "),
        Edit("fusion/enqueue/unmasking.py", r"|\*+", ""),
        Edit("fusion/enqueue/unmasking.py", '"*" in value or ', ""),
    ),
)
