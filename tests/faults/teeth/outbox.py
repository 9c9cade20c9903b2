"""Mistakes about outboxes of databases."""

from __future__ import annotations

from tests.faults.teeth.edits import LUA, Edit, a_mutant

_OUTBOX = "fusion/contrib/outbox/"
OF_OUTBOX = (
    a_mutant(
        "outbox1",
        "a batch that is sent again is accepted again, once its jobs are forgotten",
        "store/test_outbox_marks.py::test_a_number_is_accepted_once_though_its_jobs_are_long_forgotten"
        " faults/crash/test_outbox.py::test_a_forwarder_is_killed_anywhere_and_each_row_is_one_job[outbox.accepted]"
        " faults/outbox/test_kills.py::test_each_row_is_one_job_in_order_whoever_is_killed[SQLite]",
        Edit(
            LUA + "enqueue.lua",
            "    redis.call('HSET', key, queue, number .. ' ' .. stamp)\n",
            "",
        ),
    ),
    a_mutant(
        "outbox2",
        "a row is parked though it was accepted in an earlier edition of its batch",
        "contrib/outbox/test_forwarder.py::test_a_row_that_was_parked_is_done_if_an_earlier_edition_was_accepted",
        Edit(_OUTBOX + "ledger.py", '"edition__gte": edition}', '"edition__gte": edition + 1}'),
    ),
    a_mutant(
        "outbox3",
        "the ttl of a job counts from when its row was forwarded",
        "contrib/outbox/test_forwarder.py::test_times_count_from_the_row",
        Edit(_OUTBOX + "row.py", "ttl - (now - since)", "ttl"),
    ),
    a_mutant(
        "outbox4",
        "what Redis lost of an outbox is not sent again",
        "contrib/outbox/test_forwarder.py::test_kept_rows_are_sent_again_to_a_redis_that_lost_data",
        Edit(_OUTBOX + "forwarder.py", "            if known < number:\n", "            if known > number:\n"),
    ),
    a_mutant(
        "outbox5",
        "a row of which no call can be made stops all that are behind it",
        "contrib/outbox/test_hostile.py::test_rows_that_nobody_of_ours_wrote_are_parked_each_with_its_reason_and_stop_nobody",
        Edit(_OUTBOX + "forwarder.py", "except (FusionError, RedisError, *_UNFIT)", "except (FusionError, RedisError)"),
    ),
    a_mutant(
        "outbox6",
        "a forwarder that died with its clock ahead is waited for until that time",
        "contrib/outbox/test_hostile.py::test_a_forwarder_whose_clock_ran_ahead_is_succeeded_when_it_is_silent",
        Edit(_OUTBOX + "process.py", "elif now - self._other[1] >= self._lease:", "elif time.time() >= held[1]:"),
    ),
    a_mutant(
        "outbox7",
        "nobody forwards once the tables were emptied",
        "contrib/outbox/test_hostile.py::test_tables_that_were_emptied_are_another_outbox",
        Edit(_OUTBOX + "process.py", "            self._ledger.identity()\n", "            return False\n"),
    ),
)
