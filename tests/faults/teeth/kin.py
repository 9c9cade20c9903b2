"""Mistakes about jobs that wait for others."""

from __future__ import annotations

from tests.faults.teeth.edits import LUA, Edit, a_mutant

_DEPS = LUA + "include/deps/"

OF_KIN = (
    a_mutant(
        "kin1",
        "a child that has been released is released again",
        "store/test_deferred.py::test_it_is_released_once",
        Edit(
            _DEPS + "undefer.lua", "  if status ~= 'deferred' then return false end\n", "  if not status then return false end\n"
        ),
    ),
    a_mutant(
        "kin2",
        "of more children than one call releases the rest is forgotten",
        "store/test_dependencies.py::test_many_children_are_released_in_the_order_in_which_they_came",
        Edit(_DEPS + "release_some.lua", "    return work_left > 0\n", "    return true\n"),
    ),
    a_mutant(
        "kin3",
        "a parent is forgotten while its children wait",
        "store/test_dependencies.py::test_a_parent_is_kept_until_its_children_have_ended",
        Edit(_DEPS + "kin.lua", "  if not is_parent(id, key) then return false end\n", "  if key then return false end\n"),
    ),
    a_mutant(
        "kin4",
        "a graph that nobody goes on with stays for ever",
        "domain/test_graphs.py::test_a_graph_whose_producer_died_leaves_nothing",
        Edit(LUA + "promote.lua", "    give_up(token) -- whoever sent it is gone\n", ""),
    ),
    a_mutant(
        "kin5",
        "the failure of a parent that was to be waited for fails the child",
        "store/test_dependencies.py::test_a_parent_that_does_not_finish[~-failed]",
        Edit(_DEPS + "settle_children.lua", "elseif not gone and redis.call", "elseif gone and redis.call"),
    ),
    a_mutant(
        "kin6",
        "of a job with many parents that is put back only those that its record names are waited for",
        "domain/test_many_parents.py::test_a_requeued_job_waits_for_all_parents_that_have_not_ended",
        Edit(LUA + "include/job/again.lua", "    do_later('a ' .. id)\n", "    redis.call('SREM', unmet_key(id), '*again')\n"),
    ),
    a_mutant(
        "kin7",
        "of a job with many parents that is deleted when it has ended the list of these stays",
        "domain/test_many_parents.py::test_a_deleted_job_leaves_all_its_parents[failed]",
        Edit(_DEPS + "kin.lua", "    if redis.call('EXISTS', parents_key(id)) == 1 then do_later('p ' .. id) end\n", ""),
    ),
    a_mutant(
        "kin8",
        "who waits for all that depends on a job does not look again at what came when it had ended",
        "domain/test_tree_wait.py::test_a_wait_for_a_tree_ends_with_its_last_dependent[_sync]",
        Edit(
            "fusion/jobs/awaiting.py",
            "            if ended or job_id in self._fresh:\n",
            "            if ended and job_id in self._fresh:\n",
        ),
    ),
    a_mutant(
        "kin9",
        "what a job was the parent of stays when that is forgotten",
        "domain/test_tree.py::test_the_names_go_with_the_parent",
        Edit(LUA + "include/job/forget.lua", "    redis.call('UNLINK', dependents_key(id))\n", ""),
    ),
    a_mutant(
        "kin10",
        "the end of a parent is told to none of its children",
        "faults/model/test_tied.py::test_few_jobs_of_many_lives_are_sound_whatever_comes_in_between",
        Edit(
            _DEPS + "kin.lua",
            "local function end_for_kin(id, key)\n  if string.find(tied[key], 'c', 1, true) then do_later('c ' .. id) end\n",
            "local function end_for_kin(id, key)\n",
        ),
    ),
    a_mutant(
        "kin11",
        "who waits for a job whose id another takes is forgotten",
        "faults/model/test_tied.py::test_children_that_have_not_heard_wait_for_the_next_job_of_their_parents_id[deleted]",
        Edit(_DEPS + "attach.lua", "  if redis.call('EXISTS', children_key(id)) == 1 then tied[key] = 'c' end\n", ""),
    ),
    a_mutant(
        "kin12",
        "the next job of an id has the former one's many parents for its own",
        "domain/test_many_parents.py::test_the_next_job_of_its_id_waits_for_all_of_its_own",
        Edit(_DEPS + "attach.lua", "  redis.call('PEXPIRE', parents_key(id), 0)\n", ""),
    ),
    a_mutant(
        "kin13",
        "jobs that wait for others come in several calls however full their queue is",
        "domain/test_room.py::test_a_graph_asks_for_room_for_those_of_it_that_wait_for_no_others[Queue]",
        Edit("fusion/enqueue/graph.py", "return Room(self.most, first) if first else None", "return None"),
    ),
    a_mutant(
        "kin14",
        "jobs of a producer that died amid its calls are told to be there",
        "faults/crash/test_makers.py::test_a_call_repeated_soon_after_a_kill_has_the_same_ids[chain-1]",
        Edit("fusion/enqueue/graph.py", 'error.status == "coming"', "False"),
    ),
    a_mutant(
        "kin15",
        "the child of a parent that is skipped in the same call waits for nobody",
        "domain/test_skipped_parents.py::test_the_child_waits_for_the_job_that_was_met[beside-in-one-call-_sync]",
        Edit(LUA + "enqueue.lua", "    if parents and instead and instead[1] then parents = with_met(parents) end\n", ""),
    ),
    a_mutant(
        "kin16",
        "a call of several forgets who was skipped in those before",
        "domain/test_skipped_parents.py::test_the_child_waits_for_the_job_that_was_met[far-in-several-_sync]",
        Edit(
            "fusion/enqueue/graph.py",
            "other.other for job_id, other in found.items() if other.skipped",
            "other.other for job_id, other in found.items() if not other.skipped",
        ),
    ),
    a_mutant(
        "kin17",
        "a chain over two queues whose first step is skipped is given up",
        "domain/test_skipped_parents.py::test_a_step_of_a_chain_is_given_what_the_job_that_was_met_returned[several]",
        Edit("fusion/enqueue/graph.py", "        nth += first is not None  #", "        nth += 1  #"),
    ),
    a_mutant(
        "kin18",
        "an id that lives again may wait for those that wait for it",
        "store/test_cycles.py::test_an_id_that_lives_again_may_not_wait_for_those_that_wait_for_it "
        "faults/model/test_tied.py::test_few_jobs_of_many_lives_are_sound_whatever_comes_in_between",
        Edit(
            LUA + "enqueue.lua",
            "      path = cycle_of(id, parents, waiting, nil, around or nil)\n",
            "",
        ),
    ),
    a_mutant(
        "kin19",
        "a job that is put back may wait for those that wait for it",
        "store/test_cycles.py::test_a_requeued_job_may_not_wait_for_its_own_dependents[requeue]",
        Edit(LUA + "include/job/again.lua", "    if path then return 'cycle ' .. cycle_text(path) end\n", ""),
    ),
    a_mutant(
        "kin20",
        "jobs that wait for each other do so for ever",
        "store/test_cycles.py::test_a_circle_of_before_fails_and_says_how",
        Edit(_DEPS + "audit_kin.lua", "  if end_circle(id) then return end\n", ""),
    ),
    a_mutant(
        "kin21",
        "a member may wait for what its batch calls back",
        "store/test_cycles.py::test_no_member_waits_for_what_its_batch_calls_back",
        Edit(_DEPS + "cycle.lua", "      if as and around and around[batch] then", "      if false then"),
    ),
)
