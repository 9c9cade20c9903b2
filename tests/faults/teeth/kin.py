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
        Edit(LUA + "promote.lua", "    do_later('x ' .. token) -- whoever sent it is gone\n", ""),
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
        "domain/test_many_parents.py::test_one_that_is_put_back_waits_for_all_that_have_not_ended",
        Edit(LUA + "include/job/again.lua", "    do_later('a ' .. id)\n", "    redis.call('SREM', unmet_key(id), '*again')\n"),
    ),
    a_mutant(
        "kin7",
        "of a job with many parents that is deleted when it has ended the list of these stays",
        "domain/test_many_parents.py::test_one_that_is_deleted_leaves_all_of_them[failed]",
        Edit(_DEPS + "kin.lua", "    if redis.call('EXISTS', parents_key(id)) == 1 then do_later('p ' .. id) end\n", ""),
    ),
    a_mutant(
        "kin8",
        "who waits for all that depends on a job does not look again at what came when it had ended",
        "domain/test_tree_wait.py::test_it_ends_with_the_last_of_those_that_depend_on_it[_sync]",
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
        Edit(LUA + "include/job/forget.lua", "redis.call('UNLINK', key, dependents_key(id))", "redis.call('UNLINK', key)"),
    ),
)
