"""Tests that `make test` leaves to `make test-long`, so that it ends within minutes. Both decide whether a change may land."""

from __future__ import annotations

from pathlib import Path

#: Directories of tests that are long by nature.
DIRECTORIES = ("tests/faults",)

#: Others, as `file::function` below `tests/`: thousands of jobs, dozens of kills, whole years of ticks, several starts of whole fleets.
NAMES = frozenset(
    """
    budgets/test_bytes.py::test_a_queued_job_beside_rqs
    budgets/test_processes.py::test_processes_at_rest
    budgets/test_requests.py::test_round_trips_of_a_busy_worker
    courier/test_fair.py::test_many_hosts_that_are_free_share_the_threads
    courier/test_hosts.py::test_a_host_that_hangs_delays_no_other
    courier/test_kills.py::test_a_thousand_failed_jobs_are_a_thousand_callbacks
    courier/test_kills.py::test_every_end_is_told_under_one_id_over_twenty_kills
    domain/test_clients.py::test_errors_are_fusions
    domain/test_failed_queue_many.py::test_five_thousand_interrupted_and_taken_up_again
    relay/test_elasticsearch.py::test_an_outage_is_felt_by_no_job_and_made_up_for
    relay/test_rate.py::test_a_sink_that_hangs_or_is_down_costs_jobs_nothing
    scheduler/test_chaos.py::test_each_tick_is_enqueued_once_while_three_schedulers_are_killed_again_and_again
    scheduler/test_redis_trouble.py::test_ticks_of_an_outage_are_made_up_by_policy
    store/test_deployed_redis.py::test_jobs_run_without_memory_that_is_writable_and_executable
    store/test_interrupted.py::test_a_handler_that_raises_inside_an_event_loop
    store/test_interrupted.py::test_whatever_cuts_a_call_short_the_next_one_gets_its_own_answer
    store/test_race.py::test_each_of_5000_jobs_is_claimed_exactly_once
    store/test_scripts.py::test_a_forgetful_server_between_all_calls
    supervisor/test_deaths.py::test_twenty_dead_workers_leave_a_clean_registry
    supervisor/test_recycling.py::test_max_jobs_under_load
    supervisor/test_rolling.py::test_a_rolling_restart_under_load_loses_nothing
    unit/test_plan_dst.py::test_a_year_of_ticks_is_cronsims_but_for_what_it_misses
    unit/test_plan_dst.py::test_the_ticks_are_those_of_a_clock_walked_minute_by_minute
    upgrade/test_mixed.py::*
    upgrade/test_turned_away.py::*
    worker/test_blame.py::*
    worker/test_held.py::test_a_worker_that_has_the_task_runs_them_at_once
    worker/test_held.py::test_many_held_jobs_do_not_delay_one_behind_them
    worker/test_greenlets.py::*
    worker/test_canary.py::test_no_end_of_a_job_shows_what_it_was_given
    worker/test_exactly_once.py::test_two_workers_run_five_thousand_jobs_once_each
    worker/test_forkserver_failures.py::test_nothing_grows_over_1500_jobs
    worker/test_prefetch.py::*
    worker/test_wildcards.py::test_a_dead_workers_job_is_claimable_within_35_s_among_5000_names
    worker/test_wildcards.py::test_an_older_producers_job_is_found_within_seconds
    worker/test_orphans.py::*
    worker/test_rq_adopt.py::*
    worker/test_pool.py::test_leaked_descriptors_are_no_other_jobs_trouble
    worker/test_producing_tasks.py::test_a_soft_timeout_breaks_nothing
    worker/test_stolen.py::*
    worker/test_tree_stop.py::*
    worker/test_queues.py::test_one_worker_runs_2000_jobs_in_the_order_of_their_arrival
    """.split()
)


def is_long(file: Path, function: str, root: Path) -> bool:
    """`function` without its parameters."""
    path = file.relative_to(root).as_posix()
    below = path.removeprefix("tests/")
    return path.startswith(tuple(f"{directory}/" for directory in DIRECTORIES)) or bool(
        NAMES & {f"{below}::{function}", f"{below}::*"}
    )
