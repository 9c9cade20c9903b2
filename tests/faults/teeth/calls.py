"""Mistakes about jobs that share a call of their task."""

from __future__ import annotations

from tests.faults.teeth.edits import LUA, Edit, a_mutant

_CODE = "fusion/worker/batched_calls.py"
_WAITING = "        for call in self.waits:\n            yield from call.runs\n"
_AGAIN = "if memory and string.sub(memory, 1, #first) == first then -- a resend"
_GIVES_WAY = "        if self.reserved and self._admission.open:"

OF_CALLS = (
    a_mutant(
        "call1",
        "a job that its call gave no answer for has finished",
        "worker/test_gathered.py::test_jobs_that_follow_one_another_go_to_one_call",
        Edit(
            _CODE,
            'decision = Decision("suspect", f"{why}; {line or shown}"',
            'decision = Decision("finished", f"{why}; {line or shown}"',
        ),
    ),
    a_mutant(
        "call2",
        "a question for more jobs that is sent again claims others",
        "store/test_follow.py::test_batched_jobs_are_claimed_a_number_at_a_time_and_not_ahead",
        Edit(LUA + "follow.lua", _AGAIN, _AGAIN.replace("memory and", "false and")),
    ),
    a_mutant(
        "call3",
        "jobs that wait for others of their call are leased once",
        "worker/test_gathered_trouble.py::test_leases_are_renewed_while_they_wait",
        Edit(_CODE, _WAITING, ""),
    ),
    a_mutant(
        "call4",
        "a job of high priority waits for the slot of a call that waits",
        "worker/test_gathered_trouble.py::test_a_call_that_waits_gives_its_slot_to_a_job_that_must_not",
        Edit("fusion/worker/admission.py", _GIVES_WAY, "        if False:"),
    ),
    a_mutant(
        "call5",
        "a call has the time of the most patient of its jobs",
        "worker/test_gathered_trouble.py::test_a_call_has_the_time_of_the_most_urgent_of_its_jobs_and_each_alone_its_own",
        Edit(_CODE, "shortest = min(runs,", "shortest = max(runs,"),
    ),
    a_mutant(
        "call6",
        "one that answers for its next loss shares a call",
        "store/test_follow.py::test_a_job_that_would_be_charged_for_a_loss_is_not_batched",
        Edit(LUA + "follow.lua", "if is_on_probation() or ", "if "),
    ),
    a_mutant(
        "call7",
        "who has no answer when its call dies answers for that",
        "worker/test_gathered.py::test_jobs_without_a_result_run_alone_after_their_process_dies_or_is_late[die-()]",
        Edit(_CODE, "replace(death, timed_out=False, suspect=True)", "replace(death, timed_out=False)"),
    ),
)
