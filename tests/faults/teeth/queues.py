"""Mistakes about what bounds queues and how their jobs take turns."""

from __future__ import annotations

from tests.faults.teeth.edits import INCLUDE, LUA, Edit, a_mutant

GATES = LUA + "include/gates/"
_FULL = "  if length and length + more > most then return { 'full', length, most, more } end\n"

OF_QUEUES = (
    a_mutant(
        "fair1",
        "a fair key gets any number of jobs in one turn",
        "store/test_fair.py::test_one_job_waits_for_one_of_each_other_key_at_most",
        Edit(INCLUDE + "turns.lua", "last and last - 1 / UNITS or turns.begin", "last or turns.begin"),
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
        Edit(INCLUDE + "room.lua", " + redis.call('ZCARD', P .. 'blocked:' .. queue)", ""),
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
    a_mutant(
        "gate1",
        "a start spends no token of its queue's rate",
        "store/test_queue_gates.py::test_a_rate_is_counted_at_the_claim",
        Edit(GATES + "turn_gates.lua", "    redis.call('HSET', key, 'tat', string.format('%.17g', gate.tat))\n", ""),
    ),
    a_mutant(
        "gate2",
        "a closed queue rings",
        "store/test_queue_gates.py::test_a_full_queue_rings_for_nobody_until_a_job_ends",
        Edit(LUA + "include/lib/ring.lua", "push(wake_key(queue), paused, closed)", "push(wake_key(queue), paused)"),
    ),
    a_mutant(
        "gate3",
        "nobody is woken when a job of a full queue ends",
        "store/test_queue_gates.py::test_a_full_queue_rings_for_nobody_until_a_job_ends",
        Edit(LUA + "turn.lua", "  for queue in pairs(freed) do pcall(reopen, queue) end\n", ""),
    ),
    a_mutant(
        "gate4",
        "all idle workers wait for the instant at which a queue opens",
        "store/test_queue_gates.py::test_one_idle_worker_waits_and_is_named",
        Edit(GATES + "turn_gates.lua", "  if mine or not is_awaited(gate) then\n", "  if true then\n"),
    ),
    a_mutant(
        "gate5",
        "a worker that waits for a queue to open, and is full, tells nobody",
        "store/test_queue_gates.py::test_one_that_waited_and_is_full_passes_it_on",
        Edit(GATES + "turn_gates.lua", "    if not spare or head.class < spare then", "    if false then"),
    ),
    a_mutant(
        "gate6",
        "jobs of a queue whose starts are counted are claimed ahead",
        "store/test_queue_gates.py::test_nothing_is_claimed_ahead_from_a_limited_or_rated_queue",
        Edit(GATES + "turn_gates.lua", " and not (ahead and room < math.huge)", ""),
    ),
    a_mutant(
        "gate7",
        "a claim of several jobs counts none of them towards the limit",
        "store/test_queue_gates.py::test_at_most_so_many_at_once_over_the_fleet",
        Edit(
            GATES + "turn_gates.lua",
            "gate.places - 1, gate.tokens - 1, gate.started + 1",
            "gate.places, gate.tokens, gate.started + 1",
        ),
    ),
    a_mutant(
        "gate8",
        "a slot for high priorities takes a job that has waited too long",
        "store/test_max_wait.py::test_a_slot_with_a_floor_takes_no_lower_class",
        Edit(LUA + "turn.lua", "if gated and floor <= 0 and head.class > 0", "if gated and head.class > 0"),
    ),
    a_mutant(
        "gate9",
        "a task that was told to stay away holds only its own job back",
        "store/test_gates_beside.py::test_a_job_that_was_limited_goes_back_and_holds_its_queue_back",
        Edit(INCLUDE + "commit.lua", "    pcall(hold_back, queue, now_ms + delay)\n", ""),
    ),
)
