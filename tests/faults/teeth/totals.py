"""Mistakes about the counters of queues and the history of jobs."""

from __future__ import annotations

from tests.faults.teeth.edits import INCLUDE, LUA, Edit, a_mutant

_AGAIN = "  if nonce == A_nonce then return 'ok' end\n"

OF_TOTALS = (
    a_mutant(
        "total1",
        "a requeue that is sent again is counted again",
        "store/test_totals.py::test_what_is_sent_again_counts_nothing",
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
        "store/test_totals.py::test_what_was_committed_is_counted_though_the_claim_fails",
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
)
