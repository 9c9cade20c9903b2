"""Every name that a script reads is defined in it, before: Lua says so only when the line runs, and inside `pcall` not even then."""

from __future__ import annotations

import pytest

from tools import lua_build
from tools.check_lua import Room, problems, sources
from tools.lua_scope import Scope

TEXTS = sources()
NAMES = sorted(name for name in TEXTS if not name.startswith("include/"))
INCLUDES = sorted(name for name in TEXTS if name.startswith("include/"))
HEADS = {name: lua_build.headers(text) for name, text in TEXTS.items()}
#: For what producers and people call. A process of the fleet asks (`member`) when it enters its list, and now and then; until then it has no work.
WRITERS = {"add_parents", "advance_operation", "cancel", "cancel_batch", "cancel_operation", "lease_operation", "open_operation",
           "reprioritise", "close_batch", "cron_pause", "cron_put", "cron_remove", "cron_resume",
           "cron_retire", "cron_run", "delete", "drop_graph", "empty", "enqueue", "lock", "note_copy", "open_batch", "pause", "quarantine",
           "release_graph", "release_slot", "requeue", "reschedule", "resume", "save_meta", "set_gate", "set_limit", "stop",
           "tend_batches", "unlock", "unpause", "log_audit", "empty_trash", "restore", "tell_verdict"}  # fmt: skip
MEMBERS = {"events_ack", "events_read", "extend", "hold_probation", "register", "relay_beat", "scheduler_beat", "schema_raise"}
ENTERING = {"register", "relay_beat", "scheduler_beat"}


FILES = {
    name: {name, *(f"include/{piece}" for piece in lua_build.in_order(HEADS[name].get("INCLUDE", ()), lua_build.include))}
    for name in NAMES
}


def _user_of(*names: str) -> str:
    """The smallest script that holds these files."""
    return min((name for name in NAMES if FILES[name].issuperset(names)), key=lambda name: len(FILES[name]))


def _without(name: str, kind: str, word: str) -> dict[str, str]:
    lines = TEXTS[name].splitlines(keepends=True)
    for at, line in enumerate(lines):
        head, _, words = line.partition(": ")
        if head == f"-- {kind}" and word in words.split():
            rest = " ".join(other for other in words.split() if other != word)
            lines[at] = f"{head}: {rest}\n" if rest else "--\n"
            return TEXTS | {name: "".join(lines)}
    raise AssertionError(f"{name} has no {word} in a line of {kind}")


def _words(kind: str) -> list[tuple[str, str]]:
    return [(name, word) for name in TEXTS for word in HEADS[name].get(kind, ())]


def test_every_name_is_defined_and_every_include_used() -> None:
    assert [problem for name in NAMES for problem in problems(name, TEXTS)] == []


def test_every_include_belongs_to_a_script() -> None:
    assert all(_user_of(name) for name in INCLUDES)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_an_include_that_is_left_out_is_noticed() -> None:
    silent = [
        (name, word)
        for name, word in _words("INCLUDE")
        if word
        not in ("writer", "member", "enter")  # these act by themselves: see test_every_writing_script_checks_that_it_may_write
        and not problems(_user_of(name), _without(name, "INCLUDE", word))
    ]
    assert silent == []


@pytest.mark.long
def test_shared_state_is_declared_by_who_uses_it_and_by_who_has_it() -> None:
    users = _words("Uses")
    assert {word for _, word in users} == {word for _, word in _words("Exports")}
    assert [one for one in users if not problems(_user_of(one[0]), _without(one[0], "Uses", one[1]))] == []
    for name, word in _words("Exports"):
        user = next(user for user, used in users if used == word)
        assert problems(_user_of(name, user), _without(name, "Exports", word)), f"{name} exports {word} to nobody"


def test_every_writing_script_checks_that_it_may_write() -> None:
    asking = {word: {name for name in NAMES if f"include/{word}" in FILES[name]} for word in ("writer", "member", "enter")}
    assert asking == {"writer": WRITERS, "member": MEMBERS, "enter": ENTERING}
    acting = {name for name in INCLUDES if "Acts" in HEADS[name]}
    assert acting == {f"include/{word}" for word in asking}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("settle('released'", "setle('released'", "deregister: setle is not defined in deregister"),
        ("back = back + 1", "bakc = back + 1", "deregister: bakc becomes a global in deregister"),
        ("K_worker", "K_wroker", "deregister: K_wroker is not defined in deregister"),
        ("-- INCLUDE: ", "-- INCLUDE: life ", "deregister: includes include/life without a use"),
    ],
)
def test_a_slip_of_the_pen_is_noticed(old: str, new: str, said: str) -> None:
    assert said in problems("deregister", TEXTS | {"deregister": TEXTS["deregister"].replace(old, new)})


def test_a_name_is_read_only_behind_its_definition() -> None:
    scope = Scope("local function a() return b() end\nlocal function b() return a() end\nif x then local c = 1 end\nreturn c, b")
    assert scope.free == [("b", 1), ("x", 3), ("c", 4)]


def test_fields_and_parameters_are_no_names() -> None:
    scope = Scope(
        "local t = { x = 1, ['y'] = 2, 3 }\nlocal function f(a, ...) return a.b[t.c]:d(...), #t, -a end\nrepeat local u = f() until u"
    )
    assert scope.free == []


@pytest.mark.parametrize(
    "text", ["local a = ", "if a then", "local function f( return 1 end", "a = 'b\n'", "return 1 end", "x = {1 2}"]
)
def test_invalid_lua_is_refused(text: str) -> None:
    with pytest.raises(SyntaxError):
        Scope(text)


def test_a_name_at_the_top_is_defined_once() -> None:
    with pytest.raises(SyntaxError, match="a is defined at the top twice"):
        Scope("local a = 1\nlocal function a() end")


# -- includes of includes


def test_an_include_stands_behind_those_that_it_includes_and_once() -> None:
    texts = {"a": "-- INCLUDE: b c\n", "b": "-- INCLUDE: d\n", "c": "-- INCLUDE: d b\n", "d": ""}
    assert lua_build.in_order(["a", "d"], texts.__getitem__) == ["d", "b", "c", "a"]


def test_includes_that_include_each_other_are_refused() -> None:
    texts = {"a": "-- INCLUDE: b\n", "b": "-- INCLUDE: c\n", "c": "-- INCLUDE: b\n"}
    with pytest.raises(ValueError, match="includes that include each other: a -> b -> c -> b"):
        lua_build.in_order(["a"], texts.__getitem__)


def test_an_include_that_there_is_not() -> None:
    with pytest.raises(ValueError, match=r"no file of lua/include is called setle\.lua"):
        lua_build.include("setle")


# -- Lua's limits

FREE_LOCALS, FREE_UPVALUES = 107, 24
TURN_FREE_LOCALS, TURN_FREE_UPVALUES = 60, 20


def test_every_script_leaves_room_under_luas_limits() -> None:
    """Of 200 locals and 60 upvalues of one function; over them a script does not load."""
    for name in NAMES:
        room = Room.of(name)
        assert room.free_locals >= (TURN_FREE_LOCALS if name == "turn" else FREE_LOCALS), name
        assert room.free_upvalues >= (TURN_FREE_UPVALUES if name == "turn" else FREE_UPVALUES), name
        assert not room.undefined, name


def test_the_count_of_locals_is_luas() -> None:
    text = "local a, b\ndo local c for i = 1, 2 do local d end end\nlocal function f(x) local y, z return a, b end"
    scope = Scope(text)
    assert (scope.most_locals, scope.most_upvalues) == (8, 2)
