"""Mistakes that break a promise of docs/guarantees.md where no other mutant does."""

from __future__ import annotations

from tests.faults.teeth.edits import INCLUDE, LUA, Edit, a_mutant

_TAKEN = "  each_of('ZREM', set_at[i] and waits_key(set_at[i]) or ready_key(names[i]), out[i])\n"
_ELSEWHERE = "  elseif status ~= 'queued' and is_elsewhere(status) then\n"
_KNOWS_THE_MARK = " or (redis.call('ZSCORE', K_marks, A_id) or '') ~= A_mark"
_CHILDREN = """        if process.returncode != 0:  # else it has ended them itself
            end_orphans(self._living)
"""
_PASSED_OVER = """            elif self._ask(lambda some=some: self._reader.ack(some, {})) is None or self._told_to_stop.wait(pause):
                return
            else:
                deliveries = deliveries[len(some) :]
"""

OF_PROMISES = (
    a_mutant(
        "promise1",
        "an enqueue of an id that is there makes the job anew",
        "faults/crash/test_clients.py::test_a_caller_may_be_killed_around_any_script[enqueue0]",
        Edit(LUA + "enqueue.lua", "elseif seen[id] or status and not is_terminal(status) then", "elseif seen[id] then"),
    ),
    a_mutant(
        "promise2",
        "an enqueue that asked for replicas returns when the primary has it",
        "faults/trouble/test_replicated.py::test_the_link_cut_the_primary_killed_the_replica_promoted",
        Edit("fusion/store/client/replication.py", "if count >= self._replicas.count:", "if count >= 0:"),
    ),
    a_mutant(
        "promise3",
        "of the jobs of one claim the first alone leaves its queue, and a claim does not ask whether a job still waits",
        "store/test_race.py::test_each_of_5000_jobs_is_claimed_exactly_once"
        " worker/test_exactly_once.py::test_two_workers_run_thousands_of_jobs_once_each[pool]",
        Edit(LUA + "turn.lua", _TAKEN, _TAKEN.replace("out[i])", "{ out[i][1] })")),
        Edit(INCLUDE + "claim.lua", _ELSEWHERE, "  elseif false then\n"),
    ),
    a_mutant(
        "promise4",
        "the outcomes of a call are told when it is over",
        "faults/crash/test_gathered.py::test_unreported_jobs_of_a_batch_run_again_when_their_worker_dies[()]",
        Edit("fusion/execution/gathered.py", "        if hooks is None and member.callback is None:\n", "        if False:\n"),
    ),
    a_mutant(
        "promise5",
        "a supervisor leaves the jobs of a worker that it saw die to their leases",
        "supervisor/test_deaths.py::test_the_job_of_a_killed_worker_is_claimed_again_within_a_second[1]",
        Edit(
            "fusion/supervisor/dead_workers.py",
            "        self._waiting.append(_DeadWorker(name, incarnation, reason, now))\n",
            '        self._log.warning("%s: %s", name, reason)\n',
        ),
    ),
    a_mutant(
        "promise6",
        "no worker looks for what the dead held",
        "worker/test_kills.py::test_another_worker_runs_a_dead_ones_job_within_lease_and_reap_interval[worker and horse]",
        Edit("fusion/runtime/maintenance.py", '            self._do("recovering what the dead held", self._recover)\n', ""),
    ),
    a_mutant(
        "promise7",
        "a worker does not end what a killed fork server leaves",
        "worker/test_orphans.py::test_a_killed_fork_servers_daemons_are_gone_before_the_rerun[process per job]",
        Edit("fusion/forkserver/client.py", _CHILDREN, ""),
    ),
    a_mutant(
        "promise8",
        "a scheduler that is late decides a tick as well",
        "store/test_cron_tick.py::test_one_of_many_concurrent_schedulers_decides_a_tick[2]",
        Edit(LUA + "cron_tick.lua", _KNOWS_THE_MARK, ""),
    ),
    a_mutant(
        "promise9",
        "all jobs of a priority have one place",
        "store/test_enqueue.py::test_order_of_arrival_inside_a_priority_whatever_the_ids"
        " store/test_fair.py::test_each_key_keeps_its_own_order_and_all_have_equal_shares"
        " worker/test_queues.py::test_one_worker_runs_2000_jobs_in_the_order_of_their_arrival",
        Edit(
            INCLUDE.replace("job/", "lib/") + "score.lua",
            "  return class + 0.5 - tonumber(seq) * UNIT\n",
            "  return class + 0.5\n",
        ),
    ),
    a_mutant(
        "promise10",
        "a callback that can't be written down keeps its job from ending",
        "store/test_callbacks.py::test_a_broken_queue_of_callbacks_fails_no_job_and_is_counted",
        Edit(INCLUDE + "callbacks.lua", "pcall(accept_delivery, {", "true, accept_delivery({"),
    ),
    a_mutant(
        "promise11",
        "a relay tries a sink that is down again at once",
        "relay/test_rate.py::test_a_sink_that_hangs_or_is_down_costs_jobs_nothing",
        Edit(
            "fusion/relay/runner.py",
            "        return max(pause, min(retry_after or 0.0, _LONGEST_ASKED))\n",
            "        return 0.0\n",
        ),
    ),
    a_mutant(
        "promise12",
        "a relay passes over what its sink did not take",
        "relay/test_elasticsearch.py::test_an_outage_is_felt_by_no_job_and_made_up_for[down]",
        Edit(
            "fusion/relay/runner.py",
            "            elif self._told_to_stop.wait(pause):\n                return\n",
            _PASSED_OVER,
        ),
    ),
    a_mutant(
        "promise13",
        "what the cap drops is not counted",
        "events/test_cap.py::test_the_cap_drops_and_counts",
        Edit(LUA + "events_read.lua", "  dropped(missing)\n", ""),
    ),
    a_mutant(
        "promise14",
        "nobody ends what has expired but who meets it in a queue",
        "worker/test_expiry.py::test_behind_a_long_job[warm]"
        " worker/test_expiry.py::test_in_queues_that_are_paused_suspended_or_served_by_nobody"
        " worker/test_expiry.py::test_by_a_scheduler_alone",
        Edit(
            "fusion/runtime/maintenance.py", '            self._do("ending what has expired", partial(self._expire, now))\n', ""
        ),
    ),
)
