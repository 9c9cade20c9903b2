"""Methods that are tasks, and what a path must not reach through a class."""

from __future__ import annotations

import collections
import functools
import os
import subprocess
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from fusion.queue import Queue
from tests.jobs import forbidden


class Counter:
    """An object that is pickled with its call."""

    def __init__(self, start: int = 0) -> None:
        self.start = start

    def add(self, number: int) -> int:
        return self.start + number

    async def add_later(self, number: int) -> int:
        return self.start + number

    @staticmethod
    def double(number: int) -> int:
        return 2 * number

    @classmethod
    def named(cls, number: int) -> str:
        return f"{cls.__name__} {number}"

    class Inner:
        @classmethod
        def named(cls) -> str:
            return cls.__qualname__

    @property
    def total(self) -> int:
        raise AssertionError("nothing reads a property")

    @functools.cached_property
    def cached(self) -> Callable[[], int]:
        raise AssertionError("nothing reads a property")

    run = staticmethod(subprocess.run)
    system = staticmethod(os.system)
    shell = classmethod(os.system)  # type: ignore[arg-type]
    bound = staticmethod(functools.partial(double, 1))
    wrapped_foreign = staticmethod(forbidden.wrapped_foreign)
    module = os
    foreign_class = subprocess.Popen
    path_class = PurePath
    instance: Any = None
    text = "text"
    lambda_ = lambda self: None  # noqa: E731


class Heir(Counter):
    pass


class FromOutside(collections.UserDict[str, int]):
    """Inherits class methods of a module that is not allowed."""


class Meta(type):
    def reached(cls) -> None:
        raise AssertionError("a method of the class of a class is none of its own")

    def __getattr__(cls, name: str) -> Any:
        raise AssertionError("nothing reads an attribute that a class makes up")


class Made(metaclass=Meta):
    pass


class Spoofing:
    """Claims to be a class."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise AssertionError("nothing believes it")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("nothing reads an attribute of an object")


Counter.instance = Counter(1)
counter = Counter(2)
spoofing = Spoofing()
alias = os
queue_class = Queue
made: Callable[[], type] = lambda: Counter  # noqa: E731
