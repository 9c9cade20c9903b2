"""The table of states: what follows from it, and that a state need not be named in more places."""

from __future__ import annotations

import re

from fusion.kernel.states import ENDED, KEPT, LIGHTS, REQUEUEABLE, STATES, WAITING
from fusion.operations.actions import ORDER
from fusion.status import TERMINAL, JobStatus
from fusion.store.layout.keys import Keys
from tools import lua_build
from tools.lua_build import include


def test_programs_and_the_table_know_the_same_states() -> None:
    assert set(STATES) == {status.value for status in JobStatus}
    assert {str(status) for status in TERMINAL} == set(ENDED)


def test_each_state_is_one_of_three_kinds() -> None:
    assert [name for name, state in STATES.items() if state.ended + state.waits + (name == "started") != 1] == []
    assert set(WAITING) == {name for name, state in STATES.items() if state.waits}
    assert sorted(ORDER) == sorted(STATES)
    assert set(REQUEUEABLE) < set(ENDED)
    assert set(LIGHTS.values()) == {"good", "bad", "warn"}


def test_the_set_of_each_state() -> None:
    keys = Keys("rq:")
    assert {name: keys.set_of(name, "q") for name in STATES} == {
        "started": keys.wip("q"),
        "failed": keys.failed,
        "blocked": keys.blocked("q"),
        "queued": keys.queue("q"),
        "scheduled": keys.scheduled,
        "deferred": keys.deferred("q"),
        "canceled": keys.canceled("q"),
        "stopped": keys.stopped("q"),
        "finished": keys.finished("q"),
    }
    assert set(KEPT) == {"canceled", "stopped", "finished"}


def test_scripts_have_it_from_the_table() -> None:
    assert include("states") == lua_build.source_of_states()
    assert re.findall(r"'(\w+)'", include("states").split("is_terminal(status)")[1].split("end")[0]) == list(reversed(ENDED))
