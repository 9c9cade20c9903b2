"""Mistakes about what bounds queues and how their jobs take turns."""

from __future__ import annotations

from tests.faults.teeth.edits import INCLUDE, LUA, Edit, a_mutant

_FULL = "  if length and length + more > most then return { 'full', length, most, more } end\n"

OF_QUEUES = (
    a_mutant(
        "fair1",
        "a fair key gets any number of jobs in one turn",
        "store/test_fair.py::test_one_job_waits_for_one_of_each_other_key_at_most",
        Edit(INCLUDE + "turns.lua", "last and last - 1 / UNITS or turns.clock", "last or turns.clock"),
    ),
    a_mutant(
        "fair2",
        "jobs without a fair key have no turns",
        "store/test_fair.py::test_jobs_without_a_key_take_part_as_one",
        Edit(INCLUDE + "turns.lua", "name == '' and not has_turns(queue)", "name == ''"),
    ),
    a_mutant(
        "room1",
        "whether there is room is asked when the jobs are written",
        "store/test_room.py::test_one_too_many_is_refused_and_nothing_is_written",
        Edit(LUA + "enqueue.lua", _FULL, ""),
        Edit(
            LUA + "enqueue.lua",
            "if best then ring(A_queue, best) end\n",
            "if best then ring(A_queue, best) end\n"
            "if gate_texts[A_queue] and length_of(A_queue) > most_of(A_queue) then return { 'full', #fresh, #fresh, #fresh } end\n",
        ),
    ),
    a_mutant(
        "room2",
        "blocked jobs take no room",
        "store/test_room.py::test_blocked_jobs_count",
        Edit(INCLUDE + "room.lua", " + redis.call('ZCARD', set_of('blocked', queue))", ""),
    ),
    a_mutant(
        "room3",
        "a resent enqueue needs room for what it has brought already",
        "domain/test_room.py::test_an_enqueue_whose_answer_is_lost_is_not_refused_for_itself[Queue]",
        Edit(
            LUA + "enqueue.lua",
            "if again and #fresh == 0 then\n",
            "if again and #fresh == 0 and gate_texts[A_queue] ~= false and length_of(A_queue) >= (most_of(A_queue) or 1e9) then "
            "return { 'full', 1, 1, 1 } end\nif again and #fresh == 0 then\n",
        ),
    ),
)
