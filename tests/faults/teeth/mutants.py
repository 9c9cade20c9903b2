"""Mistakes that somebody could have made, each with the tests that notice it. Without faults the system works with any of them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.model.test_cron import MISTAKES as CRON_MISTAKES
from tests.faults.model.test_mistakes import MISTAKES
from tests.faults.teeth.arguments import OF_ARGUMENTS
from tests.faults.teeth.batches import OF_BATCHES
from tests.faults.teeth.bulk import OF_BULK
from tests.faults.teeth.calls import OF_CALLS
from tests.faults.teeth.crowds import OF_CROWDS
from tests.faults.teeth.edits import INCLUDE, LUA, Edit, a_mutant
from tests.faults.teeth.failures import OF_FAILURES
from tests.faults.teeth.hands import OF_HANDS
from tests.faults.teeth.hooks import OF_HOOKS
from tests.faults.teeth.inprocess import OF_INPROCESS
from tests.faults.teeth.kin import OF_KIN
from tests.faults.teeth.limits import OF_LIMITS
from tests.faults.teeth.long import OF_LONG
from tests.faults.teeth.outbox import OF_OUTBOX
from tests.faults.teeth.promises import OF_PROMISES
from tests.faults.teeth.queries import OF_QUERIES
from tests.faults.teeth.queues import OF_QUEUES
from tests.faults.teeth.sheets import OF_SHEETS
from tests.faults.teeth.shipped import OF_WHAT_IS_SHIPPED
from tests.faults.teeth.sites import OF_SITES
from tests.faults.teeth.stops import OF_STOPS
from tests.faults.teeth.totals import OF_TOTALS
from tests.faults.teeth.trash import OF_TRASH
from tests.faults.teeth.unique import OF_UNIQUE_KEYS
from tests.faults.teeth.web import OF_WEB

#: A case of the crash matrix, and the soak.
_GROUP_STRUCK = (
    "turn.before@2, horse; turn.after@2, worker; claim.after_reply@2, both; outcome.received@2, freeze; dispatch.after@3, horse;"
    " handout.frame@3, worker"
)
_SOAK = "test_whatever_is_killed_no_accepted_job_is_lost_stuck_or_ended_by_one_that_did_not_hold_it"
_LEASE = "  redis.call('ZADD', wip_key(queue), LEASE_END, id)\n"
_INDEX = """  if #held == 0 then redis.call('HSET', held_key, id, exec) end
  held[#held + 1], held[#held + 2] = id, exec
"""
_GROUP = "_killpg(pid, signal.SIGKILL)\n            except OSError:\n                pass\n        _, status"
_NO_GROUP = Edit("fusion/forkserver/server.py", _GROUP, _GROUP.replace("_killpg(pid, signal.SIGKILL)", "pass"))
_DEATH_SIGNAL = Edit("fusion/forkserver/horse.py", "    set_parent_death_signal(_signal.SIGKILL)\n", "")
_FAREWELL = Edit(
    "fusion/forkserver/server.py", "        finally:\n            self._farewell()\n", "        finally:\n            pass\n"
)
_FENCE = "  if job.execution_id ~= exec then return 'stale', false end\n"
_FINISHED = "    end_job(id, key, queue, job.priority, 'finished',"
_TOLD = "  if job.status ~= 'started' then return 'ok', false end\n"
_HEARD = """        reply = partial(self._reply, self._open, name, incarnation)
        return self._received(self._open, self._link.attempt(reply, since=self._outages))
"""
_DUE = "local found = redis.call('ZRANGEBYSCORE', K_scheduled, from, upto, 'WITHSCORES', 'LIMIT', 0, limit + 1)\n"
_PROMOTE = 'self._script("promote")({"scheduled": self.keys.scheduled}, {"limit": limit}'
_POP = f"""seconds, micros = self.connection.time()
        due = self.connection.zrangebyscore(self.keys.scheduled, "-inf", seconds + micros / 1e6, start=0, num=limit)
        if due:
            self.connection.zrem(self.keys.scheduled, *due)
        moved, *next_ms = {_PROMOTE}, due)"""
_FOLLOW = """text = _text(response)
    if response.status in (301, 302, 307, 308) and response.getheader("Location"):
        from fusion.delivery.targets import parse_target

        target = parse_target(response.getheader("Location"), policy)
        return post(target, body, headers, policy, signature=signature, resolve=resolve, connect=connect)
"""
_WRITE = "            refused, pause = self._write(some)\n"
_ACK = "            self._ask(lambda some=some: self._reader.ack(some, {}))\n"
_EXIT = "    what = describe_death(death.status)\n"

_CUT = "store/test_interrupted.py::test_whatever_cuts_a_call_short_the_next_one_gets_its_own_answer"
_UNDECODED = "return {NEVER_DECODE: True} if client.get_encoder().decode_responses else {}"

MUTANTS = (
    a_mutant(
        "a",
        "a claim takes the job out of its queue and writes down nowhere who has it",
        "faults/crash/test_alone.py::test_a_job_is_another_workers_though_its_own_died_with_the_claim_in_hand"
        f" faults/crash/test_worker.py::test_a_process_may_be_killed_at_any_failpoint[{_GROUP_STRUCK}]",
        Edit(INCLUDE + "claim.lua", _LEASE + _INDEX, ""),
    ),
    a_mutant(
        "b1",
        "a claim takes the job out of its queue before it writes the lease",
        "store/test_faults.py::test_a_broken_key_stops_its_queue_only[rq:wip:bad]",
        Edit(INCLUDE + "claim.lua", _LEASE, "  redis.call('ZREM', ready_key(queue), id)\n" + _LEASE),
    ),
    a_mutant(
        "b2",
        "a job that finished gives up its lease before it is in the set of finished ones",
        "store/test_faults.py::test_a_broken_terminal_set_refuses_that_outcome_only",
        Edit(INCLUDE + "commit.lua", _FINISHED, "    redis.call('ZREM', wip, id)\n" + _FINISHED),
    ),
    a_mutant(
        "c",
        "an outcome is taken from whoever tells it",
        "store/test_commit.py::test_a_stale_worker_is_refused"
        " worker/test_kills.py::test_a_stopped_worker_loses_its_lease_and_its_late_outcome[process]"
        " worker/test_kills.py::test_a_stopped_worker_loses_its_lease_and_its_late_outcome[asyncio]",
        Edit(INCLUDE + "commit.lua", _FENCE, ""),
    ),
    a_mutant(
        "d",
        "who lost a job still counts as the one that holds it",
        "store/test_reap.py::test_an_expired_lease_gives_the_job_back_to_its_place"
        " store/test_commit.py::test_a_stale_worker_is_refused",
        Edit(INCLUDE + "settle.lua", "  redis.call('HDEL', key, 'execution_id')\n", ""),
    ),
    a_mutant(
        "e1",
        "a worker's sign of life renews no lease",
        "faults/crash/test_alone.py::test_a_job_stays_its_workers_for_longer_than_a_lease",
        Edit("fusion/runtime/membership.py", "(name, incarnation, held, lease, ttl,", "(name, incarnation, (), lease, ttl,"),
    ),
    a_mutant(
        "e2",
        "a lease is renewed for whoever asks",
        "store/test_extend.py::test_another_execution_is_not_extended"
        " worker/test_kills.py::test_a_resumed_worker_kills_the_job_that_another_has",
        Edit(LUA + "extend.lua", "if status ~= 'started' or holder ~= exec then", "if status ~= 'started' then"),
    ),
    a_mutant(
        "f1",
        "an outcome that is told again counts again",
        "store/test_commit.py::test_the_same_outcome_again_under_another_token_changes_nothing",
        Edit(INCLUDE + "commit.lua", _TOLD, ""),
    ),
    a_mutant(
        "f2",
        "a turn that is sent again is another turn",
        "faults/trouble/test_replies.py::test_a_turn_whose_answer_is_lost store/test_turn.py::test_a_token_claims_once",
        Edit(LUA + "turn.lua", "if tonumber(A_token) == last then", "if false then"),
    ),
    a_mutant(
        "f3",
        "a turn that was asked for and got no answer is forgotten",
        "runtime/test_asked_turns.py::test_a_turn_that_was_asked_for_in_vain_is_repeated_word_for_word_and_waited_for[silence]"
        " faults/trouble/test_turns_under_way.py::test_a_turn_that_is_not_answered_is_repeated[claim-lose-pool]",
        Edit(
            "fusion/runtime/outbox.py",
            _HEARD,
            "        sent, self._open = self._open, None\n" + _HEARD.replace("self._open", "sent"),
        ),
    ),
    a_mutant(
        "g",
        "due jobs are taken out of the schedule by one call and put into their queues by the next",
        "scheduler/test_kills.py::test_one_killed_beside_a_batch_of_due_jobs_leaves_each_moved_once[promote.before-1]"
        f" faults/soak/test_soak.py::{_SOAK}[process-4]",
        Edit(
            LUA + "promote.lua",
            _DUE,
            "local found = {} for i = REST, #ARGV do found[2 * (i - REST) + 1], found[2 * (i - REST) + 2] = ARGV[i], '1' end\n",
        ),
        Edit("fusion/store/write/broker.py", f"moved, *next_ms = {_PROMOTE})", _POP),
    ),
    a_mutant(
        "h",
        "the id of a cron job does not name its tick",
        "store/test_cron_tick.py::test_a_job_of_that_id_is_never_made_twice"
        " scheduler/test_chaos.py::test_each_tick_is_enqueued_once_while_three_schedulers_are_killed_again_and_again",
        Edit(LUA + "cron_tick.lua", "'cron-' .. A_id .. '-' .. name", "'cron-' .. A_id .. '-' .. next_seq()"),
    ),
    a_mutant(
        "i",
        "a process that exits with code 0 has done its job",
        "worker/test_hostile.py::test_tasks_that_end_their_process",
        Edit(
            "fusion/worker/outcomes.py",
            _EXIT,
            '    if os.WIFEXITED(death.status) and death.status == 0:\n        return Decision("finished")\n' + _EXIT,
        ),
    ),
    a_mutant(
        "j1",
        "the process group of a job that ended is not killed",
        "faults/crash/test_alone.py::test_the_process_group_is_killed_where_orphans_can_not_be_listed[end]",
        _NO_GROUP,
    ),
    a_mutant(
        "j2",
        "at its hard timeout the job's process is killed and its group is not",
        "faults/crash/test_alone.py::test_the_process_group_is_killed_where_orphans_can_not_be_listed[timeout]",
        _NO_GROUP,
        Edit("fusion/forkserver/horse_process.py", "for send in (_killpg, _kill):", "for send in (_kill,):"),
    ),
    a_mutant(
        "j3",
        "nobody is killed at the hard timeout",
        "forkserver/test_hostile.py::test_hard_timeout[c_loop]"
        " worker/test_timeouts.py::test_a_job_is_gone_by_timeout_and_grace[process]"
        " worker/test_timeouts.py::test_a_job_is_gone_in_time_though_its_worker_is_stopped",
        Edit("fusion/forkserver/horse_process.py", "        if self._deadline <= now:\n", "        if self._deadline < 0:\n"),
    ),
    a_mutant(
        "j4",
        "what has left the job's process group is not looked for",
        "forkserver/test_hostile.py::test_grandchildren_are_gone_when_the_job_is[True]"
        " forkserver/test_hostile.py::test_daemons_below_daemons",
        Edit(
            "fusion/forkserver/server.py",
            "        orphans = [pid for pid in self._children.pids() if pid not in known and pid not in self._stuck]\n",
            "        orphans: list[int] = []\n",
        ),
    ),
    a_mutant(
        "k",
        "Redis does not wait for the disk (`appendfsync no`)",
        "faults/soak/test_power_loss.py::test_with_appendfsync_always_no_acknowledged_enqueue_or_commit_is_lost",
        Edit(
            "tests/faults/soak/test_power_loss.py", 'with _powered(server_binary, "always")', 'with _powered(server_binary, "no")'
        ),
    ),
    a_mutant(
        "l",
        "a callback follows a redirect",
        "courier/test_delivering.py::test_a_redirect_is_not_followed",
        Edit("fusion/delivery/post.py", "text = _text(response)\n", _FOLLOW),
    ),
    a_mutant(
        "m1",
        "a claim notes with the worker what it has and writes no lease",
        "store/test_reap.py::test_an_expired_lease_gives_the_job_back_to_its_place",
        Edit(INCLUDE + "claim.lua", _LEASE, ""),
    ),
    a_mutant(
        "m2",
        "a claim writes a lease and does not note with the worker what it has",
        "store/test_reap.py::test_a_worker_seen_dying_is_buried_at_once",
        Edit(INCLUDE + "claim.lua", _INDEX, ""),
    ),
    a_mutant(
        "n1",
        "a job's process does not die with the fork server",
        "forkserver/test_forkserver.py::test_horses_do_not_outlive_the_server",
        _DEATH_SIGNAL,
    ),
    a_mutant(
        "n2",
        "a fork server whose worker has died goes without ending what it started",
        "forkserver/test_forkserver.py::test_closing_the_control_socket_ends_everything",
        _FAREWELL,
    ),
    a_mutant(
        "n3",
        "both of these",
        "forkserver/test_forkserver.py::test_horses_do_not_outlive_the_server"
        " forkserver/test_forkserver.py::test_closing_the_control_socket_ends_everything",
        _DEATH_SIGNAL,
        _FAREWELL,
    ),
    a_mutant(
        "o",
        "an enqueue that is sent again is not known by its nonce",
        "faults/trouble/test_replies.py::test_an_enqueue_that_got_no_answer_is_one_job"
        " faults/trouble/test_producers.py::test_repeat_makes_no_second_job[lose]",
        Edit(LUA + "enqueue.lua", "  local resent = status and (nonce or record[5] and id) == sent\n", "  local resent = nil\n"),
    ),
    a_mutant(
        "p",
        "outcomes told to a Redis that has lost the worker's entry are not told again",
        "faults/crash/test_alone.py::test_an_outcome_is_kept_though_redis_has_lost_the_workers_entry",
        Edit(
            "fusion/runtime/outbox.py",
            "            self.renumber()\n        else:\n",
            "            self._open = None\n        else:\n",
        ),
    ),
    a_mutant(
        "q",
        "the relay acknowledges events before the sink has them",
        "relay/test_kills.py::test_killed_again_and_again_a_relay_loses_nothing",
        Edit("fusion/relay/runner.py", _WRITE, _ACK + _WRITE),
    ),
    a_mutant(
        "r",
        "a callback has another id at each try",
        "courier/test_delivering.py::test_a_failed_try_comes_again_by_the_schedule_with_the_same_id"
        " courier/test_kills.py::test_a_courier_killed_around_the_post_leads_to_another_under_the_same_id[callback.after_post]"
        " courier/test_kills.py::test_every_end_is_delivered_under_one_id_over_twenty_kills",
        Edit("fusion/courier/delivery.py", "return self.claimed.id\n", 'return f"{self.claimed.id}-{self.tries}"\n'),
    ),
    a_mutant(
        "s",
        "after an outage the living are taken for dead",
        "store/test_reap.py::test_after_an_outage_it_holds_off_one_lease",
        Edit(LUA + "reap.lua", "if now_ms < hold then\n", "if false then\n"),
    ),
    a_mutant(
        "t",
        "a job that takes its process down each time runs for ever",
        "worker/test_kills.py::test_a_poison_pill_fails_after_its_last_life",
        Edit(INCLUDE + "settle.lua", "lost >= MAX_LOST and not job.shared and job.on_lost ~= 'again'", "false"),
    ),
    a_mutant(
        "u1",
        "a worker's death is the loss of each of its jobs",
        "store/test_blocked.py::test_shared_losses_count_up_to_probation",
        Edit(
            INCLUDE + "settle.lua",
            "job.shared = mark_of(exec) ~= ALONE -- its worker ran nothing else",
            "job.shared = false",
        ),
    ),
    a_mutant(
        "u2",
        "a job that was lost again and again runs beside others",
        "store/test_blocked.py::test_shared_losses_count_up_to_probation",
        Edit(INCLUDE + "claim.lua", "(tonumber(lost) or 0) >= PROBATION and on_lost ~= 'again'", "false"),
    ),
    a_mutant(
        "u3",
        "the worker for jobs on probation does not hear that its worker ends",
        "worker/test_blame.py::test_a_worker_that_is_told_to_end_takes_no_more_jobs_on_probation[slots]",
        Edit("fusion/runtime/supervised.py", "        self.released = True\n", "        self.released = self._patience < inf\n"),
    ),
    a_mutant(
        "v1",
        "each job of a task that is not there takes a process to find that out",
        "store/test_blocked.py::test_the_others_are_set_aside_without_a_claim"
        " worker/test_held.py::test_many_held_jobs_do_not_delay_one_behind_them[slots]",
        Edit(INCLUDE + "claim.lua", "local why, set = task and lacking[task],", "local why, set = false,"),
    ),
    a_mutant(
        "v2",
        "nobody is told of the sets in which jobs wait",
        "store/test_blocked.py::test_workers_learn_of_new_sets_once"
        " worker/test_held.py::test_a_worker_that_has_the_task_runs_them_at_once[slots]",
        Edit(INCLUDE + "park.lua", "if version == known then return {} end", "if version then return {} end"),
    ),
    a_mutant(
        "w1",
        "a connection that an exception left amid an exchange serves the next call",
        _CUT + "[ours-enqueue]",
        Edit("fusion/store/client/sockets.py", "            connection.disconnect()\n", "            pass\n"),
    ),
    a_mutant(
        "w2",
        "so does one of a client that is somebody else's",
        _CUT + "[theirs-enqueue]",
        Edit("fusion/store/client/adapter.py", "                self._disown()\n", "                pass\n"),
    ),
    a_mutant(
        "w3",
        "a soft timeout strikes inside a call of Fusion's own",
        "store/test_interrupted.py::test_a_soft_timeout_lets_a_call_end[ours-enqueue]",
        Edit("fusion/kernel/timeouts.py", "        if self.depth:\n", "        if self.firm:\n"),
    ),
    a_mutant(
        "y",
        "a client that decodes its answers decodes those to Fusion",
        "domain/test_clients.py::test_enqueueing[decoding]",
        Edit("fusion/store/client/adapter.py", _UNDECODED, "return {}"),
    ),
    a_mutant(
        "z",
        "what another program keeps in the schedule is moved like a job",
        "store/test_rq_shared.py::test_no_script_changes_what_is_theirs[promote]"
        " worker/test_rq_adopt.py::test_periodic_jobs_and_workers_of_a_neighbour_outlive_ours",
        Edit(LUA + "promote.lua", "    if job[4] then\n", "    if true then\n"),
    ),
    *OF_PROMISES,
    *OF_QUEUES,
    *OF_QUERIES,
    *OF_TOTALS,
    *OF_HANDS,
    *OF_LIMITS,
    *OF_KIN,
    *OF_BATCHES,
    *OF_HOOKS,
    *OF_BULK,
    *OF_FAILURES,
    *OF_LONG,
    *OF_CROWDS,
    *OF_ARGUMENTS,
    *OF_CALLS,
    *OF_STOPS,
    *OF_SHEETS,
    *OF_TRASH,
    *OF_OUTBOX,
    *OF_UNIQUE_KEYS,
    *OF_SITES,
    *OF_WEB,
    *OF_INPROCESS,
    *OF_WHAT_IS_SHIPPED,
)

#: Not a mutant: that the rig sees another system's real loss.
BASELINE = (
    "stock RQ 2.12 on two queues, one answer to `LPOP` cut",
    "tests/faults/test_stock_rq.py::test_a_reply_that_is_lost_is_a_job_that_is_lost",
)


#: Passes with any of them.
STILL_WORKS = "tests/faults/test_works.py::test_a_worker_does_what_it_is_given"


def table() -> Iterator[str]:
    """The rows for docs/guarantees.md: mutant and catching tests, then those of the models, which are changes of Lua text as well."""
    for mutant in MUTANTS:
        yield _row(mutant.letter, mutant.name, *mutant.caught_by)
    yield _row("", *BASELINE)
    for path, mistakes in (("mistakes", MISTAKES), ("cron", CRON_MISTAKES)):
        for mistake in mistakes:
            yield _row("", mistake.name, f"tests/faults/model/test_{path}.py::test_a_walk_finds")


def _row(letter: str, name: str, *tests: str) -> str:
    said = ", ".join(f"`{without_case(test)}`" for test in dict.fromkeys(tests))
    return f"| {letter} | {name} | {said} |"


def without_case(node: str) -> str:
    return node.partition("[")[0]
