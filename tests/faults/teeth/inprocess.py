"""Mistakes about jobs in the threads of one process."""

from __future__ import annotations

from tests.faults.teeth.edits import Edit, a_mutant

_PLACE = "fusion/inprocess/"
_AGAIN = "        shared.pause(lambda: failed_at + (min(pause, _WHILE_STOPPING) if shared.stopping else pause))"
_CLAIM = "        where = \" WHERE id = ? AND state = 'pending' AND is_currently_running = 0\"\n"

OF_INPROCESS = (
    a_mutant(
        "inprocess1",
        "an outcome that the plan did not take is dropped",
        "inprocess/test_plans_that_raise.py::test_an_outcome_that_the_plan_refuses_is_kept_and_sent_again",
        Edit(_PLACE + "worker.py", _AGAIN, "        break"),
    ),
    a_mutant(
        "inprocess2",
        "a job whose time is over is Pending while its thread still runs it",
        "inprocess/test_threads_that_die.py::test_an_overdue_job_stays_active_until_its_thread_has_ended_and_another_worker_takes_its_place",
        Edit(_PLACE + "crew.py", "if not run.thread.is_alive()]", "if run.overdue or not run.thread.is_alive()]"),
    ),
    a_mutant(
        "inprocess3",
        "two managers claim one row",
        "inprocess/test_table_plan.py::test_a_row_is_claimed_once_however_many_try",
        Edit(_PLACE + "table_plan.py", _CLAIM, _CLAIM.replace(" AND is_currently_running = 0", "")),
    ),
    a_mutant(
        "inprocess4",
        "what was fetched before a job completed is taken for news when the fetch took long",
        "inprocess/test_job_queue.py::test_a_job_completed_during_a_long_fetch_is_not_queued_again",
        Edit(_PLACE + "job_queue.py", "(self._clock.now() if as_of is None else as_of) - RECENT", "self._clock.now() - RECENT"),
    ),
    a_mutant(
        "inprocess5",
        "workers pull queued jobs while memory is scarce",
        "inprocess/test_manager.py::test_workers_pull_nothing_of_what_is_queued_while_memory_is_scarce",
        Edit(_PLACE + "job_queue.py", "if self._queued and not self._paused:", "if self._queued:"),
    ),
)
