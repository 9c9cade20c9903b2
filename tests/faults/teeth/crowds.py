"""Mistakes about jobs that share a process."""

from __future__ import annotations

from tests.faults.teeth.edits import INCLUDE, Edit, a_mutant

_UNCOUNTED = "    job.unbegun = job.displaced or job.suspect\n"
_TIME = "(len(must_end) == len(horse.runs) or now >= min(horse.kill_by, horse.answer_by))"

OF_CROWDS = (
    a_mutant(
        "crowd1",
        "what another job of its process did costs a job a life",
        "store/test_commit.py::test_a_death_caused_by_another_job_is_not_charged"
        " worker/test_crowd.py::test_a_neighbour_that_takes_longer_than_the_grace_goes_back_unharmed[thread]",
        Edit(INCLUDE + "commit.lua", _UNCOUNTED, "    job.unbegun = false\n"),
    ),
    a_mutant(
        "crowd2",
        "one that does not end takes its neighbours along",
        "executors/test_concurrent.py::test_an_overdue_run_is_killed_once_its_neighbours_have_ended"
        " worker/test_crowd.py::test_one_that_does_not_end_is_killed_with_its_process_and_no_neighbour_runs_twice[thread]",
        Edit("fusion/executors/concurrent.py", _TIME, "True"),
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
        "executors/test_concurrent.py::test_all_runs_of_a_process_that_dies_are_suspects"
        " worker/test_crowd.py::test_only_a_job_that_kills_its_process_alone_is_charged[asyncio]",
        Edit("fusion/executors/concurrent_horse.py", "suspect=crowd > 1 and not (ours or late)", "suspect=False"),
    ),
    a_mutant(
        "crowd5",
        "jobs that cost each other their process do so for ever",
        "worker/test_crowd.py::test_those_whose_time_is_over_end_by_it_when_they_cost_each_other_their_process",
        Edit("fusion/executors/concurrent_horse.py", "(self.struck or time.monotonic() >= self.late_from)", "False"),
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
        "executors/test_concurrent.py::test_runs_in_an_evicted_process_do_not_occupy_slots",
        Edit("fusion/executors/concurrent.py", "if not (horse.company or horse.condemned):", "if True:"),
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
        "forkserver/test_shared_line.py::test_a_send_during_another_write_does_not_block_and_is_flushed_later",
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
    a_mutant(
        "crowd12",
        "a callback that ends its process has its task run again",
        "worker/test_outcome_stands.py::test_a_callback_that_ends_its_process[process-exits] "
        "worker/test_outcome_stands.py::test_a_callback_that_blocks_in_c[thread-late-on_failure-60-failed]",
        Edit("fusion/worker/outcomes.py", 'if run.stands is None and found.get(b"kind") in _KINDS:', "if False:"),
    ),
    a_mutant(
        "crowd13",
        "one that has its process killed by its own timeout counts as displaced",
        "executors/test_concurrent.py::test_one_whose_own_limit_was_raised_in_its_thread_is_charged_and_no_neighbour",
        Edit("fusion/executors/concurrent_horse.py", "(self.struck or time.monotonic()", "(time.monotonic()"),
    ),
    a_mutant(
        "crowd14",
        "one that is alone in its process counts as displaced",
        "executors/test_concurrent.py::test_an_isolated_run_is_never_displaced",
        Edit("fusion/executors/concurrent_horse.py", "self.killed is None and not self.horse.alone:", "self.killed is None:"),
    ),
    a_mutant(
        "crowd15",
        "what puts a job back uncharged may do so for ever",
        "store/test_commit.py::test_a_begun_job_is_returned_uncharged_five_times_in_a_row[displaced] "
        "store/test_commit.py::test_a_begun_job_is_returned_uncharged_five_times_in_a_row[release]",
        Edit(
            INCLUDE + "commit.lua",
            "    if begun and not let_off(key) then\n",
            "    if begun and not let_off(key) and false then\n",
        ),
    ),
    a_mutant(
        "crowd16",
        "jobs that a blocked event loop keeps from beginning wait in its process until their time is over",
        "worker/test_crowd.py::test_those_that_come_while_the_loop_is_blocked_run_elsewhere",
        Edit("fusion/executors/concurrent.py", "                self._hold_up(horse, run, frame)\n", ""),
    ),
    a_mutant(
        "crowd17",
        "a job's time goes on while another blocks its event loop",
        "worker/test_crowd.py::test_the_time_for_which_another_blocks_the_loop_is_not_ones_own",
        Edit("fusion/forkserver/asyncio_horse.py", "        if others > 0 and self._until is not None:", "        if False:"),
    ),
    a_mutant(
        "crowd18",
        "those that a blocked event loop held up are charged with the one that blocks it",
        "worker/test_crowd.py::test_only_the_job_that_blocks_the_loop_is_charged",
        Edit(
            "fusion/executors/concurrent_horse.py",
            "            self.held_up, self.due = seconds, self.due + seconds\n",
            "            pass\n",
        ),
    ),
)
