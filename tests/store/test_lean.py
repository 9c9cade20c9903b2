"""What is taken out of the scripts' text changes nothing of what they say."""

from __future__ import annotations

import re

import pytest

from fusion.store.scripting.lean import inlined, made_when_called, without_empty, without_unused
from fusion.store.scripting.scripts import folded


def test_functions_that_nothing_names_are_taken_out_with_what_only_they_use() -> None:
    text = (
        "local function a(x) return x end\n"
        "local function b(x)\n  if x then\n    return a(x)\n  end\nend\n"
        "local function c(x)\n  local function d() return 1 end\n  return d() + x\nend\n"
        "return c(1)\n"
    )
    assert without_unused(text) == text[text.index("local function c") :]


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


def test_what_is_luas_own_may_be_used() -> None:
    text = "local function class_of(p) return math.max(0, tonumber(p) or 1) end\nreturn class_of(found[2])\n"
    assert inlined(text) == "return (math.max(0, tonumber((found[2])) or 1))\n"


def test_a_small_function_that_is_handed_on_stays() -> None:
    text = "local function is_one(x) return x == '1' end\nreturn pcall(is_one, a)\n"
    assert inlined(text) == text


def test_constants_stand_in_the_places_of_their_names() -> None:
    text = 'local A_KEY, UNIT, count = "rq:a", 2 ^ -44, 0 -- why\nlocal NONE = {}\nreturn A_KEY, UNIT * count, NONE\n'
    assert re.sub(r" +", " ", folded(text)) == 'local count = 0\nlocal NONE = {}\nreturn "rq:a", (2 ^ -44) * count, NONE\n'


def test_rare_functions_are_made_by_the_first_call_of_one() -> None:
    text = (
        "local function a(x) return x end\n"
        "local function b(x)\n  return a(x) .. 'a(b)' -- a(b)\nend\n"
        "local function c() return b(x.a(1)) end\n"
        "local function d() return 1 end\n"
        "return pcall(b, 1), a(), c(), d()\n"
    )
    assert made_when_called(text, [{"a", "b", "d"}]) == (
        "local rare, made_0\n"
        "local function c() return rare(2, x.a(1)) end\n"
        "rare = function(nth, ...)\nif nth <= 3 then\nif not made_0 then\n"
        "local function a(x) return x end\n"
        "local function b(x)\n  return a(x) .. 'a(b)' -- a(b)\nend\n"
        "local function d() return 1 end\n"
        "made_0 = { a, b, d }\nend\nreturn made_0[nth](...)\nend\nend\n"
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
        "local rare, made_0, made_1\n"
        "local known, count = {}, 0\n"
        "rare = function(nth, ...)\nif nth <= 2 then\nif not made_0 then\n"
        "local seen = {} -- so far\n"
        "local function a(x)\n  seen[x] = true\nend\n"
        "local function b() return seen end\n"
        "made_0 = { a, b }\nend\nreturn made_0[nth](...)\nend\n"
        "if nth <= 4 then\nif not made_1 then\n"
        "local function c() return known, rare(2) end\n"
        "local function d(x)\n  count = count + 1\nend\n"
        "made_1 = { c, d }\nend\nreturn made_1[nth - 2](...)\nend\nend\n"
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


def test_an_empty_function_goes_with_its_calls() -> None:
    text = (
        "local function on_end(id, key) end\n"
        "local function finish(id)\n  on_end(id, key)\n  if is_ours(id) then on_end(id, nil) end\n  return id\nend\n"
        "return finish('a')\n"
    )
    assert without_empty(text) == "local function finish(id)\n  return id\nend\nreturn finish('a')\n"
