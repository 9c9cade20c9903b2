"""Mistakes about concurrency keys."""

from __future__ import annotations

from tests.faults.teeth.edits import INCLUDE, LUA, Edit, a_mutant

LIMIT = LUA + "include/limit/limit.lua"
_HANDED_ON = "  if stood then settle_key(name) end\n"
_SWAP = "      if count == limit and not (best[1] and tonumber(best[2]) > tonumber(worst[2])) then return end\n"

OF_LIMITS = (
    a_mutant(
        "limit1",
        "a job that ends gives its slot back and hands it on to nobody",
        "store/test_limits.py::test_whatever_ends_or_leaves_hands_its_slot_on_in_that_call[finished]",
        Edit(LIMIT, _HANDED_ON, _HANDED_ON.replace("settle_key(name)", "stood = false")),
    ),
    a_mutant(
        "limit2",
        "of those that wait for a slot the last is admitted first",
        "store/test_limits.py::test_five_jobs_of_a_key_with_two_slots_start_in_exactly_their_order",
        Edit(
            LIMIT, "redis.call('ZRANGE', waiting, 0, 0, 'REV', 'WITHSCORES')", "redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')"
        ),
    ),
    a_mutant(
        "limit3",
        "a better job waits for a slot that nobody has used yet",
        "store/test_limits.py::test_a_better_newcomer_takes_the_slot_of_one_that_has_not_started",
        Edit(LIMIT, _SWAP, "      if count == limit then return end\n"),
    ),
    a_mutant(
        "limit4",
        "a limit that is raised admits nobody",
        "store/test_limit_store.py::test_a_pinned_limit_holds_whatever_jobs_say",
        Edit(LUA + "set_limit.lua", "settle_key(A_key)\n", ""),
    ),
    a_mutant(
        "limit5",
        "a token of a key's rate is spent by arriving",
        "store/test_limit_store.py::test_as_many_jobs_of_a_rated_key_are_admitted_as_may_start",
        Edit(
            LIMIT,
            "    redis.call('ZADD', held, score, id)\n  elseif string.find",
            "    redis.call('ZADD', held, score, id)\n    may_start(name)\n  elseif string.find",
        ),
        Edit(LIMIT, "  if has and may_start(name) then\n", "  if has then\n"),
    ),
    a_mutant(
        "limit6",
        "what is claimed ahead may have a key, and keeps its slot behind a job that runs",
        "store/test_limits.py::test_nothing_with_a_key_is_claimed_ahead",
        Edit(INCLUDE + "claim.lua", "string.find(ties, '[km]') and mark_of(exec) == AHEAD", "false"),
    ),
    a_mutant(
        "limit7",
        "a job that stands in its queue needs no slot to start",
        "store/test_limits.py::test_a_queued_job_without_a_slot_is_not_claimed[True]",
        Edit(
            LIMIT,
            "has = redis.call('ZCARD', held) < limit_of(name) and redis.call('EXISTS', queue_up_key(name)) == 0\n  end\n  if has",
            "has = true\n  end\n  if has",
        ),
    ),
    a_mutant(
        "limit8",
        "a job that is lost gives its slot up over its pause",
        "store/test_limits.py::test_one_that_is_lost_again_keeps_its_slot_over_its_pause",
        Edit(
            INCLUDE + "settle.lua",
            "  on_return(id, key, queue)\nend\n",
            "  if pause > 0 and tied[key] then leave_limit(id, key) else on_return(id, key, queue) end\nend\n",
        ),
    ),
    a_mutant(
        "limit10",
        "workers that lack a job's task hand its slot on for ever, while another has the task",
        "store/test_limit_tasks.py::test_it_is_not_handed_on_for_ever",
        Edit(INCLUDE + "park.lua", "\n      or tied[key] and keep_for_worker(id, key, place_in_key(key, queue, score))", ""),
    ),
    a_mutant(
        "limit9",
        "a task that was told to stay away holds its queue back, and not its key",
        "store/test_limit_holds.py::test_a_task_that_is_told_to_stay_away_holds_its_key_back",
        Edit(INCLUDE + "commit.lua", "if kind == 'limited' and tied[key] then", "if false then"),
    ),
)
