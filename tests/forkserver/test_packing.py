"""Functions whose code is copied, so that it lies side by side, do what they did."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from fusion.forkserver import packing

SOURCE = """
def outer(value):
    def inner(more):
        return {b"value": value, b"more": more}
    return inner(b"more")

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
    packing.pack(codes, ())
    assert module.outer.__code__ is not before[0] and module.outer.__code__ == before[0]
    assert module.alone.__code__ is before[1], "it was not called"
    assert module.outer(b"1") == {b"value": b"1", b"more": b"more"}


def test_all_functions_of_a_module_can_be_chosen(module: ModuleType) -> None:
    module.alone.__module__ = ["a task module may put anything there"]
    before = module.outer.__code__, module.alone.__code__
    packing.pack(set(), (module.__name__, "a_module_that_is_not_loaded"))
    assert module.outer.__code__ is not before[0] and module.alone.__code__ is not before[1]
    assert (module.outer(b"1")[b"value"], module.alone()) == (b"1", b"alone")


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
