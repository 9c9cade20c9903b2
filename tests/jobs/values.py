"""Types to send as arguments."""

from __future__ import annotations

import enum
from collections import namedtuple
from dataclasses import InitVar, dataclass, field
from typing import Any


class Color(enum.Enum):
    RED = "r"
    CRIMSON = "r"  # noqa: PIE796  an alias
    NONE = None


class Level(enum.IntEnum):
    LOW = 1


class Word(str, enum.Enum):
    HELLO = "hello"


class Flags(enum.Flag):
    A = 1
    B = 2


@dataclass
class Point:
    x: int
    y: Any = 0

    class Unit(enum.Enum):
        CM = 1


@dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    tags: tuple[str, ...] = ()


@dataclass
class Counted:
    start: int
    total: int = field(init=False, default=0)
    runs: int = 0

    def __post_init__(self) -> None:
        self.total = self.start * 2
        self.runs += 1


@dataclass
class NeedsMore:
    x: int
    extra: InitVar[int]

    def __post_init__(self, extra: int) -> None:
        self.x += extra


class Plain:
    pass


class Text(str):  # noqa: SLOT000
    def __str__(self) -> str:
        return "something else"


Pair = namedtuple("Pair", "a b")
