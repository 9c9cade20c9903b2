"""Functions whose code is copied, so that it lies side by side, do what they did."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from fusion.forkserver import packing

SOURCE = """
def outer(value, number=0.0, *, last=None):
    "A text."
    def inner(more):
        return {b"value": value, b"more": more}
    return inner((number, 70000, "a b", (1.5, last)))

class Base:
    def method(self):
        return "method of "

class Class(Base):
    def method(self):
        return super().method() + "Class"

def fails(number):
    value = 1
    return 1 / number

def alone():
    return b"alone"
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("packed_module")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(compile(SOURCE, "packed_module.py", "exec"), made.__dict__)
    return made


def test_the_functions_that_a_call_calls_get_other_code_that_does_the_same(module: ModuleType) -> None:
    before = module.outer.__code__, module.alone.__code__
    codes = packing.called_by(lambda: module.outer(b"1"))
    packing.pack(codes, module.__name__)
    assert module.outer.__code__ is not before[0] and module.alone.__code__ is before[1], "only what was called"
    assert module.outer(b"1", 2.5) == {b"value": b"1", b"more": (2.5, 70000, "a b", (1.5, None))}


def test_a_copy_takes_the_place_of_a_function_in_its_module_and_its_classes(module: ModuleType) -> None:
    before = module.outer, module.Class.method, module.alone
    module.outer.mark = 1
    packing.pack(packing.called_by(lambda: (module.outer(b"1"), module.Class().method())), module.__name__)
    assert module.outer is not before[0] and module.Class.method is not before[1] and module.alone is before[2]
    assert (module.outer.mark, module.outer.__name__, module.outer.__doc__, module.outer.__module__) == (
        *(1, "outer", "A text."),
        before[0].__module__,
    )
    assert module.outer.__kwdefaults__ == {"last": None} and module.Class.method.__qualname__ == "Class.method"
    assert module.Class().method() == "method of Class", "a copy has the class of `super()`"


def test_functions_of_other_packages_stay_where_they_are(module: ModuleType) -> None:
    before = module.outer
    packing.pack(packing.called_by(lambda: module.outer(b"1")), "packed")
    assert module.outer is before and before(b"1")[b"value"] == b"1"


def test_an_error_in_a_copy_shows_its_line(module: ModuleType) -> None:
    lines = []
    for _ in range(2):
        with pytest.raises(ZeroDivisionError) as raised:
            module.fails(0)
        lines.append(raised.traceback[-1].lineno + 1)
        packing.pack(packing.called_by(lambda: module.fails(1)), module.__name__)
    assert lines == [SOURCE[: SOURCE.index("return 1 / ")].count("\n") + 1] * 2


def test_copies_lie_side_by_side(module: ModuleType) -> None:
    """Without copies, each would be in a page of its own, with other functions or free memory between them."""
    space: dict[str, Any] = module.__dict__
    codes: dict[int, None] = {}
    apart = []
    for number in range(40):
        exec(f"def f{number}(): return {number * 1000}", space)
        codes[id(space[f"f{number}"].__code__)] = None
        apart.append(bytearray(5000 + number))
    packing.pack(codes, module.__name__)
    pages = {id(space[f"f{number}"].__code__) >> 12 for number in range(40)}
    assert len(pages) <= 16, pages
    assert [space[f"f{number}"]() for number in range(40)] == [number * 1000 for number in range(40)]


def test_a_profiler_that_ran_before_runs_on(module: ModuleType) -> None:
    def profiler(*args: Any) -> None:
        return None

    before: Callable[..., Any] | None = sys.getprofile()
    sys.setprofile(profiler)
    try:
        packing.called_by(module.alone)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(before)
