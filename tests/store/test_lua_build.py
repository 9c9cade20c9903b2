"""What the build of the scripts does to their text, and that what is shipped was built from the sources that are there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from fusion.store.client.classify import without_place
from fusion.store.scripting import scripts
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.kit.hands import new
from tools import lua_build
from tools.lua_build import Line


def on_lines(step: Callable[..., list[Line]], text: str, *more: object) -> str:
    return "".join(f"{line.text}\n" for line in step([Line(one) for one in text.splitlines()], *more))


def without_unused(text: str) -> str:
    return on_lines(lua_build.without_unused, text)


def inlined(text: str) -> str:
    return on_lines(lua_build.inlined, text)


def folded(text: str) -> str:
    return on_lines(lua_build.folded, text)


def in_place(text: str, names: set[str], rare: set[str] | None = None) -> str:
    return on_lines(lua_build.in_place, text, names, rare or set())


def made_when_called(text: str, groups: list[set[str]]) -> str:
    return on_lines(lua_build.made_when_called, text, groups)


# -- steps


def test_functions_that_nothing_names_are_taken_out_with_what_only_they_use() -> None:
    text = (
        "local function a(x) return x end\n"
        "local function b(x)\n  if x then\n    return a(x)\n  end\nend\n"
        "local function c(x)\n  local function d() return 1 end\n  return d() + x\nend\n"
        "return c(1)\n"
    )
    assert without_unused(text) == text[text.index("local function c") :]


def test_variables_that_nothing_names_are_taken_out_unless_their_value_does_something() -> None:
    text = "local a = {} -- of b\nlocal b = { x = 1 }\nlocal c\nlocal d = redis.call('TIME')\nlocal e = 1\nreturn e\n"
    assert without_unused(text) == "local d = redis.call('TIME')\nlocal e = 1\nreturn e\n"


def test_a_small_function_stands_where_it_was_called() -> None:
    text = "local function job_key(id) return P .. 'job:' .. id end\nreturn job_key(x.id), job_key(found[1] or 'a')\n"
    assert inlined(text) == "return (P .. 'job:' .. x.id), (P .. 'job:' .. (found[1] or 'a'))\n"


def test_a_call_in_an_argument_and_a_word_in_a_string() -> None:
    text = (
        "local function id_key(id) return P .. 'id:' .. id end\n"
        "local function is_list(queue) return queue == 'queue' end\n"
        "return is_list(id_key(f(')', a))), id_key(is_list(b))\n"
    )
    assert inlined(text) == "return ((P .. 'id:' .. (f(')', a))) == 'queue'), (P .. 'id:' .. ((b == 'queue')))\n".replace(
        "(P .. 'id:' .. (f(')', a))) ==", "((P .. 'id:' .. (f(')', a)))) =="
    )


def test_functions_that_use_more_than_their_argument_stay() -> None:
    text = (
        "local function twice(x) return x .. x end\n"
        "local function of_another(x) return x == y end\n"
        "local function next_one() return redis.call('INCR', P) end\n"
        "local function exists(key) return redis.call('EXISTS', key) == 1 end\n"
        "return twice(f()), of_another(1), next_one(), exists('a')\n"
    )
    assert inlined(text) == text


def test_an_inlined_function_may_use_builtins_of_lua() -> None:
    text = "local function class_of(p) return math.max(0, tonumber(p) or 1) end\nreturn class_of(found[2])\n"
    assert inlined(text) == "return (math.max(0, tonumber(found[2]) or 1))\n"


def test_a_small_function_that_is_handed_on_stays() -> None:
    text = "local function is_one(x) return x == '1' end\nreturn pcall(is_one, a)\n"
    assert inlined(text) == text


def test_constants_stand_in_the_places_of_their_names() -> None:
    text = 'local A_KEY, UNIT, count = "rq:a", 2 ^ -44, 0 -- why\nlocal NONE = {}\nreturn A_KEY, UNIT * count, NONE\n'
    assert re.sub(r" +", " ", folded(text)) == 'local count = 0\nlocal NONE = {}\nreturn "rq:a", (2 ^ -44) * count, NONE\n'


def test_the_body_of_a_function_that_is_called_once_stands_where_it_was_called() -> None:
    text = (
        "local x\n"
        "local function a()\n  local function d() return 1 end\n  x = d()\nend\n"
        "local function b()\n  a()\nend\n"
        "if y then\n  b()\nend\n"
        "return x\n"
    )
    assert in_place(text, {"a", "b"}) == (
        "local x\nif y then\n do\n do\n  local function d() return 1 end\n  x = d()\n end\n end\nend\nreturn x\n"
    )


def test_what_a_function_takes_becomes_locals_of_its_block() -> None:
    text = "local function a(x, y)\n  z = x\nend\nlocal b = 1\na(b, f(2, 3))\n"
    assert in_place(text, {"a"}) == "local b = 1\n do\nlocal x, y = b, f(2, 3)\n  z = x\n end\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("local function a()\n  return 1\nend\na()\n", id="returns"),
        pytest.param("local function a()\n  y = 1\nend\na()\na()\n", id="called twice"),
        pytest.param("local function a()\n  y = 1\nend\nreturn a()\n", id="not a line of its own"),
        pytest.param(
            "local function a()\n  local function b()\n    return 1\n  end\n  return b()\nend\na()\n", id="returns behind another"
        ),
    ],
)
def test_a_function_that_can_not_stand_in_the_place_of_its_call_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a"):
        in_place(text, {"a"})


def test_an_early_return_leaves_a_loop_that_runs_once() -> None:
    text = (
        "local function a(x)\n  if x then return end -- why\n  y = 1\nend\n"
        "local function b(x)\n  if x == 1 then\n    return 'one'\n  end\n  return x\nend\n"
        "local found = b(2)\na(found)\n"
    )
    assert in_place(text, {"a", "b"}) == (
        "local found\n repeat\nlocal x = 2\n  if x == 1 then\n    found = 'one' break\n  end\n  found = x\n until true\n"
        " repeat\nlocal x = found\n  if x then break end\n  y = 1\n until true\n"
    )


def test_further_arguments_stand_where_the_function_hands_them_on() -> None:
    text = "local function a(x, ...)\n  if x then\n    f(x, ...)\n  end\nend\nif y then\n  a(1, 'b', c[2],\n    d(3, 4))\nelse\n  g()\nend\n"
    assert in_place(text, {"a"}) == (
        "if y then\n do\nlocal x = 1\n  if x then\n    f(x, 'b', c[2], d(3, 4))\n  end\n end\nelse\n  g()\nend\n"
    )


def test_a_function_that_is_rare_as_well_stays_for_those_and_for_calls_that_are_not_alone_in_their_line() -> None:
    text = (
        "local function a(x)\n  y = x\n  return x\nend\n"
        "local function b()\n  local z = a(1)\n  return z\nend\n"
        "local z = a(2)\na(3)\nif a(z) then b() end\n"
    )
    assert in_place(text, {"a"}, {"a", "b"}) == text.replace(
        "local z = a(2)\n", "local z\n do\nlocal x = 2\n  y = x\n  z = x\n end\n"
    )


def test_a_function_does_not_stand_where_a_name_of_its_own_means_something_else() -> None:
    text = "local count = 0\nlocal function a()\n  count = count + 1\nend\nlocal function b(count)\n  a()\n  return count\nend\nreturn b(1)\n"
    with pytest.raises(ValueError, match="a takes count, which is something else where it is called"):
        in_place(text, {"a"})
    text = (
        "local count = 0\nlocal function a()\n  count = count + 1\nend\nif x then\n  local count = 2\n  a()\nend\nreturn count\n"
    )
    with pytest.raises(ValueError, match="a takes count"):
        in_place(text, {"a"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("local function a()\n  for i = 1, 2 do\n    if x then return end\n  end\nend\na()\n", "returns out of a loop"),
        ("local function a()\n  for i = 1, 2 do if x then return end end\n  y = 1\nend\na()\n", "returns out of a loop"),
        ("local function a()\n  if x then return end\n  local function b()\n    y = 1\n  end\nend\na()\n", "holds a function"),
        ("local function a()\n  y = 1\nend\nlocal b = a()\n", "returns nothing"),
        ("local function a(...)\n  local c = 1\n  f(...)\nend\na(c)\n", "names of what it is called with"),
    ],
)
def test_other_functions_that_can_not_stand_in_the_place_of_a_call_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"a .*{why}"):
        in_place(text, {"a"})


def test_a_small_function_may_use_a_variable_of_the_script_and_an_argument_twice() -> None:
    text = (
        "local known = {}\nlocal function f(x) return redis.call(x) end\n"
        "local function key_of(q) return known[q] ~= false and f(q) or P .. q end\n"
        "return key_of(queue), key_of(names[i])\n"
    )
    assert inlined(text).splitlines()[2] == (
        "return (known[queue] ~= false and f(queue) or P .. queue), (known[names[i]] ~= false and f(names[i]) or P .. names[i])"
    )


def test_commands_and_arguments_are_at_hand_outside_of_functions() -> None:
    text = (
        "local function a() return redis.call('TIME', ARGV[1]) end\n"
        "local b = function(x)\nif x then\nredis.call('end')\nend\nrepeat\nx = ARGV[2]\nuntil x\nend\n"
        "for i = 1, ARGV[1] do\nif i then redis.call('A', ARGV[i]) end\nend\n"
        "return redis.call('B', ARGV[2]), redis.call('C'), redis.pcall('D')\n"
    )
    assert on_lines(lua_build.at_hand, text) == (
        "local command, argv = redis.call, ARGV\nlocal function a() return redis.call('TIME', ARGV[1]) end\n"
        "local b = function(x)\nif x then\nredis.call('end')\nend\nrepeat\nx = ARGV[2]\nuntil x\nend\n"
        "for i = 1, argv[1] do\nif i then command('A', argv[i]) end\nend\n"
        "return command('B', argv[2]), command('C'), redis.pcall('D')\n"
    )


def test_rare_functions_are_made_by_the_first_call_of_one() -> None:
    text = (
        "local function a(x) return x end\n"
        "local function b(x)\n  return a(x) .. 'a(b)' -- a(b)\nend\n"
        "local function c() return b(x.a(1)) end\n"
        "local function d() return 1 end\n"
        "return pcall(b, 1), a(), c(), d()\n"
    )
    assert made_when_called(text, [{"a", "b", "d"}]) == (
        "local rare, groups_made\n"
        "local function c() return rare(2, x.a(1)) end\n"
        "rare = function(nth, ...)\nif not groups_made then groups_made = {} end\nif nth <= 3 then\nif not groups_made[1] then\n"
        "local function a(x) return x end\n"
        "local function b(x)\n  return a(x) .. 'a(b)' -- a(b)\nend\n"
        "local function d() return 1 end\n"
        "groups_made[1] = { a, b, d }\nend\nreturn groups_made[1][nth](...)\nend\nend\n"
        "return pcall(rare, 2, 1), rare(1), c(), rare(3)\n"
    )


def test_functions_of_two_groups_are_made_apart_by_one_maker_with_the_variables_that_they_alone_use() -> None:
    text = (
        "local seen = {} -- so far\n"
        "local known, count = {}, 0\n"
        "local function a(x)\n  seen[x] = true\nend\n"
        "local function b() return seen end\n"
        "local function c() return known, b() end\n"
        "local function d(x)\n  count = count + 1\nend\n"
        "return a(1), c(), d(2), count\n"
    )
    assert made_when_called(text, [{"a", "b"}, {"c", "d"}]) == (
        "local rare, groups_made\n"
        "local known, count = {}, 0\n"
        "rare = function(nth, ...)\nif not groups_made then groups_made = {} end\nif nth <= 2 then\nif not groups_made[1] then\n"
        "local seen = {} -- so far\n"
        "local function a(x)\n  seen[x] = true\nend\n"
        "local function b() return seen end\n"
        "groups_made[1] = { a, b }\nend\nreturn groups_made[1][nth](...)\nend\n"
        "if nth <= 4 then\nif not groups_made[2] then\n"
        "local function c() return known, rare(2) end\n"
        "local function d(x)\n  count = count + 1\nend\n"
        "groups_made[2] = { c, d }\nend\nreturn groups_made[2][nth - 2](...)\nend\nend\n"
        "return rare(1, 1), rare(3), rare(4, 2), count\n"
    )


def test_one_rare_function_stays() -> None:
    text = "local function a() return 1 end\nreturn a()\n"
    assert made_when_called(text, [{"a", "b"}]) == text


def test_a_rare_function_that_is_handed_on_is_refused() -> None:
    text = "local function a() return 1 end\nlocal function b() return 2 end\nreturn each(a, b())\n"
    with pytest.raises(ValueError, match="a is made when it is called"):
        made_when_called(text, [{"a", "b"}])


def test_a_word_in_a_string_or_a_comment_is_no_use_of_a_function() -> None:
    text = "local function a() return 1 end\nlocal function b() return 'a' end -- a isn't used\nreturn b()\n"
    assert without_unused(text) == text[text.index("local function b") :]


def test_a_constant_of_a_fleet_stays_open_in_what_is_made_of_it() -> None:
    text = "local KEY, LONGEST = P .. 'a', 2 * RESULT_TTL\nreturn KEY, LONGEST\n"
    assert folded(text) == "return P .. 'a', (2 * RESULT_TTL)\n"


def test_the_arguments_of_a_small_function_stand_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"stand in one line: return job_key"):
        inlined("local function job_key(id) return P .. 'job:' .. id end\nreturn job_key(f(\n  1))\n")


# -- what is shipped


def test_what_is_shipped_was_built_from_these_sources() -> None:
    assert lua_build.main(["--check"]) == 0, "run: make lua"


def test_a_source_that_changed_is_noticed_and_built(tmp_path: Path) -> None:
    shutil.copytree(lua_build.LUA.parents[1], tmp_path / "fusion", ignore=shutil.ignore_patterns("__pycache__"))
    source, built = (tmp_path / "fusion/store/lua" / name for name in ("pause.lua", "built/pause.lua"))
    source.write_text(source.read_text() + "-- more\nlocal unused = 1\nreturn 'more'\n")
    (built.parent / "gone.lua").write_text("return 1\n")
    root = Path(lua_build.__file__).parents[1]

    def run(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tools.lua_build", *words],
            env={"PYTHONPATH": f"{tmp_path}:{root}"}, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    assert run("--check") == (1, "lua: not built from their sources: gone pause; run: make lua\n")
    assert run() == (0, f"lua: {len(lua_build.script_names()) + 1} files, 2 of them changed\n")
    assert built.read_text().endswith("return 'more'\n")
    assert "unused" not in built.read_text()
    assert not (built.parent / "gone.lua").exists()
    assert run("--check") == (0, "")


def test_a_name_that_nothing_defines_is_refused() -> None:
    def read(path: Path) -> str:
        return path.read_text() + ("return no_such_name()\n" if path.name == "pause.lua" else "")

    with pytest.raises(ValueError, match=r"^pause: no_such_name is not defined$"):
        lua_build.build("pause", read)


def parameters() -> set[tuple[str, str]]:
    """Each function of the sources with what it takes, but for the further arguments, which stand where it hands them on."""
    heads = re.compile(r"local function (\w+)\((.*?)(?:(?:, )?\.\.\.)?\)")
    return {match.groups() for path in lua_build.LUA.rglob("*.lua") for match in heads.finditer(path.read_text())}  # type: ignore[misc]


def test_every_line_leads_to_its_source() -> None:
    """A line in which nothing was inlined or set is that of the source; the others have at least its first word, or call a rare function."""
    known = parameters()
    for name in ("turn", "enqueue", "cancel"):
        text = scripts.load(name).text(FleetConstants(), (7,))
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if not line.startswith(("--@", "#!"))]
        same = 0
        for number, line in lines:
            file, _, at = scripts.source_of(text, number).partition(":")
            if file == "built":
                continue
            source = (lua_build.LUA / file).read_text().splitlines()[int(at) - 1].strip()
            same += source.startswith(line)
            # What a function in the place of its call takes, as it names it; or is assigned to; or what such a function returns.
            call = re.fullmatch(r"(?:local (\w+(?:, \w+)*) = |\w+(?:, \w+)* = |return )?(\w+)\(.*\)?,?", source)
            made = re.fullmatch(r"local (\w+(?:, \w+)*)(?: = (.*))?", line)
            taken = call and made and ((made[1] == call[1] and not made[2]) or (call[2], made[1]) in known)
            assigned = re.match(r"\w+(?:, \w+)* = (.*)", line)
            given = assigned and source.startswith("return ") and assigned[1].split()[0] == source.split()[1]
            changed = (
                taken
                or given
                or re.search(r"\brare\b|command\(", line)
                or line in ("do", "repeat", "until true")
                or re.search(r"^[A-Z]|\b[KA]_|_key\(|\bARGV\b", source)
            )
            assert line.split()[0] == source.split()[0] or changed, (line, source)
        assert same > 0.6 * len(lines), (name, same, len(lines))


@pytest.mark.parametrize(
    "error",
    [
        "WRONGTYPE no list script: c64d47b1c117015b685b0f5175558658ff454375, on @user_script:2.",  # Redis 7
        "WRONGTYPE no list script: on @user_script:2.",  # Valkey
        "user_script:2: WRONGTYPE no list script: c64d47b1c117015b685b0f5175558658ff454375, on @user_script:2.",  # raised by Lua
        "user_script:2: WRONGTYPE no list script: on @user_script:2.",
        "@user_script: 2: WRONGTYPE no list",  # Redis 6
        "@user_script:2: WRONGTYPE no list",
    ],
)
def test_the_errors_of_all_servers_lead_to_the_source(error: str) -> None:
    text = "--@include/lib/keys.lua:37\nredis.call('LPUSH')\n"
    assert scripts.with_source(error, text) == "WRONGTYPE no list (fusion/store/lua/include/lib/keys.lua:37)"
    assert without_place(scripts.with_source(error, text)) == "WRONGTYPE no list"
    assert scripts.with_source("OOM no room", text) == "OOM no room"


def test_an_error_names_the_line_of_the_source(conn: redis.Redis) -> None:
    broker = Broker(conn)
    conn.set("rq:queues", "no set")
    with pytest.raises(redis.ResponseError) as caught:
        broker.enqueue("q", [new("a")], "n")
    lua = lua_build.LUA
    where = re.search(r"WRONGTYPE.* \(fusion/store/lua/([\w/]+\.lua):(\d+)\)$", str(caught.value))
    assert where is not None, str(caught.value)
    assert "redis.call(" in (lua / where[1]).read_text().splitlines()[int(where[2]) - 1]
