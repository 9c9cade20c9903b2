"""The tasks that the jobs of the golden data name: they must stay as long as those data do, which is for ever."""

from __future__ import annotations


def add(a: int, b: int) -> int:
    return a + b


def echo(value: object) -> object:
    return value


def boom(message: str = "boom") -> None:
    raise ValueError(message)


def told(*args: object) -> None:
    """A callback."""
