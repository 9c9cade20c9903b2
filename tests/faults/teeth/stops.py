"""Mistakes about jobs that are stopped."""

from __future__ import annotations

from tests.faults.teeth.edits import INCLUDE, LUA, Edit, a_mutant

_WISHED = "  elseif kind == 'stopped' or job.cancel and kind ~= 'failed' then\n"
_ASKED = """        back = self.recall(horse)
        self.listen_to(horse)
        failpoint("stop.taken_back")
        first = self.runs.get(horse.serial)
        if first is run and not"""
_DEADLINE = "        self._deadline, self._stopping = min(self._deadline, deadline), True\n"

OF_STOPS = (
    a_mutant(
        "stop1",
        "a stop un-finishes a job",
        "store/test_stop.py::test_a_stop_never_wins_over_an_end[finished]",
        Edit(INCLUDE + "commit.lua", "  if kind == 'finished' then\n", "  if kind == 'finished' and job.cancel ~= 'stop' then\n"),
    ),
    a_mutant(
        "stop2",
        "a job that is to stop is tried again",
        "store/test_stop.py::test_a_stop_wins_over_whatever_is_no_end[retry]",
        Edit(INCLUDE + "commit.lua", _WISHED, _WISHED.replace(" then", " and kind ~= 'retry' then")),
    ),
    a_mutant(
        "stop3",
        "who renews its leases is not told which are to stop",
        "store/test_stop.py::test_the_worker_of_a_running_job_is_told_which_execution_to_end"
        " worker/test_stop.py::test_one_that_hears_again_asks_what_it_missed",
        Edit(LUA + "extend.lua", "cancel == 'stop' and 'stopped' or ", ""),
    ),
    a_mutant(
        "stop4",
        "the signal to a warm process may meet the job behind",
        "executors/test_stops.py::test_prefetched_jobs_are_recalled_before_the_process_is_told_to_stop",
        Edit("fusion/executors/warm.py", _ASKED, _ASKED.replace("self.recall(horse)", "list[HorseRun]()")),
    ),
    a_mutant(
        "stop5",
        "a task that cleans up is struck again",
        "unit/test_stopping.py::test_no_stop_is_raised_during_clean_up",
        Edit("fusion/kernel/stopping.py", " and not leads_to(sys.exception(), (JobStopped,))", ""),
    ),
    a_mutant(
        "stop6",
        "what does not stop is not killed after the grace",
        "worker/test_stop.py::test_a_job_that_is_stopped_is_gone_after_the_grace[fork]",
        Edit("fusion/forkserver/horse_process.py", _DEADLINE, "        self._stopping = True\n"),
    ),
    a_mutant(
        "stop7",
        "an outcome says that the job was stopped, and nobody had asked",
        "executors/test_stops.py::test_an_outcome_stopped_counts_only_of_one_that_was_asked",
        Edit("fusion/worker/outcomes.py", 'if frame.get(b"kind") == b"stopped" and not run.stopping:', "if False:"),
    ),
    a_mutant(
        "stop8",
        "a task in a thread is struck amid a section of Fusion's own",
        "store/test_struck_threads.py::test_no_connection_is_left_half_used_and_no_other_run_is_struck[ours]"
        " unit/test_striking.py::test_strikes_at_random_instants_hit_no_section_and_no_other_run",
        Edit("fusion/kernel/striking.py", "        if hold.firm or (hold.depth and not late):\n", "        if False:\n"),
    ),
    a_mutant(
        "stop9",
        "what is raised in a thread may hit what comes after the task",
        "unit/test_striking.py::test_one_that_returns_amid_the_raise_ends_by_it",
        Edit("fusion/kernel/striking.py", "                nothing()  # a call", "                pass  # a call"),
        Edit("fusion/kernel/striking.py", "                    nothing()  # since", "                    pass  # since"),
    ),
    a_mutant(
        "stop10",
        "a stop amid the error of an import is taken for the task's own",
        "unit/test_stopping.py::test_a_stop_amid_the_error_of_an_import_is_one",
        Edit("fusion/kernel/timeouts.py", "        if struck is not None and any(", "        if struck is None and any("),
    ),
)
