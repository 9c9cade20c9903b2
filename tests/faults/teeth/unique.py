"""Mistakes about unique keys."""

from __future__ import annotations

from tests.faults.teeth.edits import LUA, Edit, a_mutant

UNIQUE, NEWCOMER = LUA + "include/unique/unique.lua", LUA + "include/unique/newcomer.lua"
_LETS_GO = "    if string.find(tied[key], 'u', 1, true) then pcall(let_go, id, key, status) end\n"
_REPLACES = "    if not string.find(unique.ties, 'd', 1, true) then end_replaced(older, id) end\n"

OF_UNIQUE_KEYS = (
    a_mutant(
        "unique1",
        "a job that ends leaves its unique key behind",
        "store/test_unique.py::test_the_key_is_free_once_its_job_has_ended_whatever_ended_it[finished]",
        Edit(LUA + "include/job/on_end.lua", _LETS_GO, ""),
    ),
    a_mutant(
        "unique2",
        "jobs of one call do not meet each other",
        "store/test_unique.py::test_jobs_of_one_call_meet_each_other",
        Edit(LUA + "enqueue.lua", "    if unique then brought[unique.name] = id end\n", ""),
    ),
    a_mutant(
        "unique3",
        "the window of a unique key begins anew with each start and end",
        "store/test_unique.py::test_a_window_after_the_start_does_not_begin_anew",
        Edit(UNIQUE, " or redis.call('PTTL', own) >= 0 then return end", " then return end"),
    ),
    a_mutant(
        "unique4",
        "a job gives its unique key up at its start, whatever it said",
        "store/test_unique.py::test_a_job_that_is_to_run_again_keeps_its_key[retry]",
        Edit(UNIQUE, "if not name or starts and upto ~= 'start' then", "if not name then"),
    ),
    a_mutant(
        "unique5",
        "the job that is replaced runs all the same",
        "store/test_unique_replace.py::test_the_newer_takes_the_place_of_the_one_that_waits",
        Edit(NEWCOMER, _REPLACES, ""),
    ),
    a_mutant(
        "unique6",
        "max_delay counts from the job that is replaced, not from the first of the series",
        "store/test_unique_replace.py::test_a_time_to_wait_for_begins_anew_and_ends_after_max_delay",
        Edit(NEWCOMER, "    began = tonumber(since) or now_ms\n", ""),
    ),
    a_mutant(
        "unique7",
        "a requeued job takes its unique key from the one that has it",
        "store/test_unique.py::test_a_requeued_job_takes_its_key_again_or_is_told_who_has_it",
        Edit(LUA + "include/job/again.lua", "    if other and other ~= id then return 'duplicate ' .. other end\n", ""),
    ),
    a_mutant(
        "unique8",
        "who had a unique key and has ended keeps others out",
        "store/test_unique.py::test_an_ended_or_missing_job_does_not_keep_its_unique_key",
        Edit(UNIQUE, "  if status and own == name and not is_terminal(status) then return id, status, false end\n",
             "  return id, status or '', false\n"),
    ),
)  # fmt: skip
