"""Mistakes about batches and chains."""

from __future__ import annotations

from tests.faults.teeth.edits import INCLUDE, LUA, Edit, a_mutant

_BATCH = LUA + "include/batch/batch.lua"
_FIRST = "  if not ended then\n    redis.call('HSET', key, 'ended_at', now_iso)\n"

OF_BATCHES = (
    a_mutant(
        "batch1",
        "what is to follow a batch follows each of its ends",
        "store/test_batch_callbacks.py::test_success_waits_for_the_requeue_that_mends_it_and_complete_follows_no_second_time",
        Edit(_BATCH, _FIRST, _FIRST.replace("if not ended", "if true")),
    ),
    a_mutant(
        "batch2",
        "a job of a batch that is deleted while it waits is open for ever",
        "store/test_batch_store.py::test_a_member_leaves_by_whatever_way_it_ends[deleted]",
        Edit(INCLUDE + "forget.lua", "on_end(id, key, queue, 'deleted')", "do end"),
    ),
    a_mutant(
        "batch3",
        "a job that is requeued is not waited for again",
        "store/test_batch_store.py::test_a_requeued_job_opens_its_batch_again_and_success_follows_once",
        Edit(LUA + "requeue.lua", "  if ties and string.find(ties, 'b', 1, true) then enter_again(id, key) end\n", ""),
    ),
    a_mutant(
        "batch4",
        "a failure that was mended goes on counting",
        "store/test_batch_store.py::test_a_requeued_job_opens_its_batch_again_and_success_follows_once",
        Edit(_BATCH, "    redis.call('HDEL', batch_ended_key(batch), member)\n", ""),
    ),
    a_mutant(
        "batch5",
        "what a job returned is forgotten before what follows its batch has read it",
        "store/test_batch_callbacks.py::test_finished_members_are_kept_until_both_callbacks_have_ended",
        Edit(_BATCH, "  if not read and (complete or success) then\n", "  if false then\n"),
    ),
    a_mutant(
        "batch6",
        "a batch around another hears of its end, and not of its second life",
        "store/test_batch_store.py::test_nested_batches_count_as_one_member_and_five_deep_is_deepest",
        Edit(_BATCH, "    if parent then enter_batch(parent, '#' .. batch) end\n", ""),
    ),
    a_mutant(
        "batch7",
        "a batch whose producer died is open for ever",
        "store/test_batch_store.py::test_a_batch_whose_producer_died_is_closed_when_its_time_is_over",
        Edit(LUA + "tend_batches.lua", "  elseif not closed and tonumber(open_until) <= now_ms then\n", "  elseif false then\n"),
    ),
    a_mutant(
        "batch8",
        "a step of a chain may be made to take what it was not to take",
        "worker/test_chains.py::test_the_steps_are_signed",
        Edit("fusion/kernel/signing.py", '"takes"', '"taken"'),
    ),
    a_mutant(
        "batch9",
        "a batch whose opener died before what is to follow had come stays as it is",
        "domain/test_batches.py::test_another_goes_on_with_a_batch_whose_opener_died_before_what_follows_had_come",
        Edit(LUA + "open_batch.lua", "is_opened(A_batch)", "true"),
    ),
    a_mutant(
        "batch10",
        "of two that open one batch, both bring what is to follow it",
        "domain/test_batches.py::test_another_goes_on_with_a_batch_whose_opener_died_before_what_follows_had_come",
        Edit(_BATCH, "~= id and 'taken' or nil end", "~= id and nil end"),
    ),
    a_mutant(
        "batch11",
        "what the first opener of a batch brings too late is taken where the next one promised none of its kind",
        "domain/test_batches.py::test_a_late_callback_of_a_dead_opener_is_refused",
        Edit(_BATCH, "'on_' .. as) ~= id and 'taken'", "'on_' .. as) or id) ~= id and 'taken'"),
        Edit(_BATCH, "if as then return redis.call", "if as then return (redis.call"),
    ),
    a_mutant(
        "batch12",
        "a batch whose opener died before what is to follow had come ends as a success when its time is over",
        "faults/crash/test_makers.py::test_a_batch_whose_time_is_over_before_what_follows_had_come_was_never_there[enqueue.after=kill@1-its-ids]",
        Edit(LUA + "tend_batches.lua", "== 0 and not is_opened(batch) then", "== 0 and false then"),
    ),
    a_mutant(
        "batch13",
        "what is to follow a batch is not held back until all of it has come",
        "faults/crash/test_makers.py::test_an_expired_batch_has_no_follow_up_that_was_not_written",
        Edit(
            LUA + "include/deps/release_some.lua",
            "    if is_coming(redis.call('HGET', job_key(id), 'graph')) then",
            "    if false then",
        ),
    ),
    a_mutant(
        "batch14",
        "an opener that was slow ends what another has opened for it",
        "domain/test_batches.py::test_an_opener_that_was_away_before_its_last_call_has_what_follows_once_or_is_refused[another-opens-it]",
        Edit(LUA + "open_batch.lua", "  give_up_callbacks(A_batch)\n", ""),
    ),
    a_mutant(
        "batch15",
        "a member that gets a child when it has finished is never forgotten",
        "store/test_batch_callbacks.py::test_a_member_that_gets_a_child_when_it_has_finished_has_its_time_once_that_has_ended "
        "store/test_batch_walks.py::test_whatever_happens_batches_count_what_is_so",
        Edit(
            LUA + "include/deps/kin.lua",
            "    if pin == 'inf' and status == 'finished' then pin = time_from_now(ttl, func) or pin end\n",
            "",
        ),
    ),
    a_mutant(
        "batch16",
        "members of a batch that another opens without callbacks are never forgotten",
        "store/test_batch_callbacks.py::test_members_of_a_batch_that_another_opens_without_callbacks_have_their_time",
        Edit(LUA + "open_batch.lua", "  redis.call('HSET', key, 'kept', 1) -- for these jobs members may have been\n", ""),
    ),
    a_mutant(
        "batch17",
        "a batch that was canceled can not be canceled again",
        "store/test_batch_store.py::test_a_batch_is_canceled_again_when_members_have_come_back[requeue]",
        Edit(
            LUA + "include/batch/cancel_members.lua",
            "      and (redis.call('HEXISTS', key, 'cancel') == 1 or redis.call('EXISTS', batch_open_key(batch)) == 0) then",
            "      and batch then",
        ),
    ),
)
