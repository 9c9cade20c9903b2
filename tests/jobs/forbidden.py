"""What a module of tasks may hold besides tasks."""

from __future__ import annotations

import functools
from os import system
from subprocess import run
from typing import Any

from fusion.kernel.timeutil import now


def plain() -> str:
    return "plain"


async def coroutine() -> None:
    return None


def decorate(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


decorated = decorate(plain)
wrapped_foreign = decorate(now)
wrapped_builtin = decorate(system)
wrapped_foreign.__module__ = wrapped_builtin.__module__ = __name__
lambda_ = lambda: None  # noqa: E731
partial = functools.partial(plain)
cached = functools.lru_cache(plain)
number = 7


class Namespace:
    @staticmethod
    def static() -> str:
        return "static"

    def method(self) -> None:
        return None

    def __call__(self) -> None:
        return None


class Proxy:
    """Has every attribute, true ones too, as mocks and RPC clients do."""

    def __getattr__(self, name: str) -> Any:
        return True

    def __call__(self) -> None:
        return None


instance = Namespace()
proxy = Proxy()


def marked() -> str:
    return "marked"


marked.__fusion_job__ = True  # type: ignore[attr-defined]

__all__ = ["run", "system"]
