"""Mistakes about jobs that share a process."""

from __future__ import annotations

from tests.faults.teeth.edits import INCLUDE, Edit, a_mutant

_UNCOUNTED = "    job.unbegun = job.displaced or job.suspect\n"
_TIME = "(len(must_end) == len(horse.runs) or now >= min(horse.kill_by, horse.answer_by))"

OF_CROWDS = (
    a_mutant(
        "crowd1",
        "what another job of its process did costs a job a life",
        "store/test_commit.py::test_what_another_job_of_its_process_did_is_not_charged",
        Edit(INCLUDE + "commit.lua", _UNCOUNTED, "    job.unbegun = false\n"),
    ),
    a_mutant(
        "crowd2",
        "one that does not end takes its neighbours along",
        "executors/test_concurrent.py::test_one_that_is_overdue_ends_with_its_process_when_the_others_have_ended",
        Edit("fusion/executors/condemned.py", _TIME, "True"),
    ),
    a_mutant(
        "crowd3",
        "a suspect runs among others",
        "executors/test_concurrent.py::test_a_suspect_runs_alone",
        Edit("fusion/worker/envelope.py", 'if fields.get(b"suspect") == b"1":', "if False:"),
    ),
    a_mutant(
        "crowd4",
        "who died among others is charged",
        "executors/test_concurrent.py::test_of_one_that_dies_among_others_nobody_knows",
        Edit("fusion/executors/concurrent_horse.py", "suspect=crowd > 1 and not (ours or late)", "suspect=False"),
    ),
    a_mutant(
        "crowd5",
        "jobs that cost each other their process do so for ever",
        "worker/test_crowd.py::test_those_whose_time_is_over_end_by_it_when_they_cost_each_other_their_process",
        Edit("fusion/executors/concurrent_horse.py", " and time.monotonic() >= self.late_from", " and False"),
    ),
    a_mutant(
        "crowd6",
        "one that outlasts its neighbours' grace never comes to an end",
        "worker/test_crowd.py::test_one_that_is_displaced_twice_runs_alone[asyncio]",
        Edit("fusion/worker/outcomes.py", '    again = b"suspect" in fields\n', "    again = False\n"),
    ),
    a_mutant(
        "crowd7",
        "jobs that go on in a condemned process keep its slots",
        "executors/test_concurrent.py::test_those_that_go_on_in_a_condemned_process_keep_no_slot_from_the_next",
        Edit("fusion/executors/concurrent.py", "if not (horse.alone or horse.condemned):", "if True:"),
    ),
    a_mutant(
        "crowd8",
        "LOW jobs that are to run alone keep HIGH ones from coming",
        "executors/test_concurrent.py::test_low_jobs_that_are_to_run_alone_do_not_keep_high_ones_from_coming",
        Edit("fusion/executors/concurrent.py", "sum(run.priority >= HIGH for run in self._waiting)", "len(self._waiting)"),
    ),
    a_mutant(
        "crowd9",
        "a reserve has no process for HIGH jobs that are to run alone",
        "executors/test_concurrent.py::test_a_reserve_has_processes_for_high_jobs_that_are_to_run_alone[1-1]",
        Edit("fusion/executors/concurrent.py", "< self._wanted + reserved", "< self._wanted"),
    ),
    a_mutant(
        "crowd10",
        "what a thread sends as another one writes stays unsent",
        "forkserver/test_shared_line.py::test_who_sends_as_another_writes_waits_for_nothing_and_nothing_stays_unsent",
        Edit(
            "fusion/forkserver/shared_line.py",
            "            while outgoing and self._duty",
            "            if outgoing and self._duty",
        ),
    ),
    a_mutant(
        "crowd11",
        "a job for which the system has no thread is forgotten",
        "forkserver/test_thread_horse.py::test_jobs_wait_for_a_thread_if_the_system_has_no_more",
        Edit(
            "fusion/forkserver/thread_horse.py",
            "                self._idle.append(hand)\n                self._hand_out()\n",
            "                self._idle.append(hand)\n",
        ),
    ),
)
