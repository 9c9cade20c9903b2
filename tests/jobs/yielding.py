"""Tasks with `yield`, of every make: a call runs none of their lines."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

#: A task named so is what the name says; each would write to the file it is given.


def generator(path: str) -> Iterator[int]:
    Path(path).touch()
    yield 1


async def async_generator(path: str) -> AsyncIterator[int]:
    Path(path).touch()
    yield 1


def returns_one(path: str) -> Iterator[int]:
    return generator(path)


async def coroutine_returns_one(path: str) -> AsyncIterator[int]:
    return async_generator(path)


def _decorated(func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapper


decorated = _decorated(generator)
partial = functools.partial(generator)
partial_of_partial = functools.partial(functools.partial(async_generator))


class Callable_:
    def __call__(self, path: str) -> Iterator[int]:
        Path(path).touch()
        yield 1

    def method(self, path: str) -> Iterator[int]:
        Path(path).touch()
        yield 1

    @staticmethod
    def static(path: str) -> Iterator[int]:
        Path(path).touch()
        yield 1

    @classmethod
    def of_class(cls, path: str) -> Iterator[int]:
        Path(path).touch()
        yield 1


instance = Callable_()
bound = instance.method
static = Callable_.static
of_class = Callable_.of_class

FUNCTIONS = ("generator", "async_generator")
RETURNING = ("returns_one", "coroutine_returns_one", "decorated")
OTHERS = ("partial", "partial_of_partial", "instance", "bound", "static", "of_class", "Callable_.static")


def loops(path: str) -> int:
    return sum(generator(path))


def consumed(func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return list(func(*args, **kwargs))

    return wrapper


listed = consumed(generator)
