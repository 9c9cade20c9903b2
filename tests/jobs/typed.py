"""Classes that travel as arguments and results."""

from __future__ import annotations

import dataclasses
import enum


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    tags: tuple[str, ...] = ()
    inner: Point | None = None
