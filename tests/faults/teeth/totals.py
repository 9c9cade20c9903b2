"""Mistakes about the counters of queues and the history of jobs."""

from __future__ import annotations

from tests.faults.teeth.edits import INCLUDE, LUA, Edit, a_mutant

_AGAIN = "  if nonce == A_nonce then return 'ok' end\n"

OF_TOTALS = (
    a_mutant(
        "total1",
        "a requeue that is sent again is counted again",
        "store/test_totals.py::test_a_resent_call_is_not_counted_again",
        Edit(LUA + "requeue.lua", _AGAIN, _AGAIN.replace("then", "then tally('requeued', original or origin, priority)")),
    ),
    a_mutant(
        "total2",
        "jobs that are emptied out of their queue are not counted",
        "store/test_totals.py::test_each_end_is_counted_once",
        Edit(LUA + "empty.lua", "  tally('deleted', origin or A_queue, class, counters)\n", ""),
    ),
    a_mutant(
        "total3",
        "what the commit half of a turn counted is written only if the claim half goes well",
        "store/test_totals.py::test_a_commit_is_counted_though_the_claim_fails",
        Edit(LUA + "turn.lua", "if done[1] then write_tallies() end\n", ""),
    ),
    a_mutant(
        "total4",
        "a job that was moved by hand ends in a queue to which it never came",
        "store/test_totals.py::test_old_producers_and_outsiders",
        Edit(INCLUDE + "count.lua", "    tally('requeued', queue, class)\n", ""),
    ),
    a_mutant(
        "total5",
        "what a worker saw is added as often as it is sent",
        "runtime/test_history.py::test_a_call_that_is_sent_again_counts_once",
        Edit(LUA + "note_history.lua", "tonumber(redis.call('HGET', K_worker, 'history')) or 0", "-1"),
    ),
    a_mutant(
        "sample1",
        "of what waits the last look of a minute is kept, not the most",
        "store/test_sample.py::test_a_step_keeps_the_most_that_was_seen",
        Edit(LUA + "sample.lua", "math.max(most[i] or 0, figure)", "figure"),
    ),
    a_mutant(
        "sample2",
        "each process that does maintenance makes a pass of its own",
        "store/test_sample.py::test_one_pass_an_interval_however_many_ask_and_it_ends_under_a_clock_set_back",
        Edit(LUA + "sample.lua", "if age >= 0 and age < tonumber(A_interval_ms) then return 0 end", ""),
    ),
    a_mutant(
        "verdict1",
        "a queue that nobody serves is healthy until its jobs are old",
        "doctor/test_incidents.py::test_nobody_serves_a_queue",
        Edit("fusion/doctor/checks/queues.py", 'f"{call} worker {words(name)}", "fail")', 'f"{call} worker {words(name)}")'),
    ),
    a_mutant(
        "verdict2",
        "names that strangers chose stand in a command as they are",
        "doctor/test_verdict.py::test_names_that_strangers_chose_are_quoted_for_the_shell",
        Edit("fusion/doctor/finding.py", "quote(name) for name in names", "name for name in names"),
    ),
)
