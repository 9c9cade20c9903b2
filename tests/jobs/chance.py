"""A task module with random generators of every sort, made on import, and tasks that draw from them and seed them."""

from __future__ import annotations

import _random
import random
from typing import Any


class Plain(random.Random):
    """A class of its own, with the numbers of its base."""


class Odd(random.Random):
    """Its own numbers, from what it is seeded with."""

    state = 1

    def seed(self, a: Any = None, version: int = 2) -> None:
        self.state = int(a or 1) % (2**61 - 1) or 1

    def random(self) -> float:
        self.state = self.state * 3 % (2**61 - 1)
        return self.state / 2**61

    def getrandbits(self, k: int) -> int:
        self.random()
        return self.state % 2**k


class Fixed(random.Random):
    """Its numbers can't be changed from outside."""

    def random(self) -> float:
        return 0.25


RNG = random.Random()
SEEDED = random.Random(1)
BARE = _random.Random(1)
PLAIN = Plain()
ODD = Odd(5)
FIXED = Fixed()
SYSTEM = random.SystemRandom()
HIDDEN = [{"deep": (random.Random(3),)}]
PAIR = random.Random(2)
PAIR.gauss(0, 1)  # it keeps the second of the pair
random.seed(7)


def draw() -> dict[str, float]:
    """One number of each."""
    found = {"global": random.random(), "bare": BARE.random(), "hidden": HIDDEN[0]["deep"][0].random(), "gauss": PAIR.gauss(0, 1)}
    return found | {name.lower(): globals()[name].random() for name in ("RNG", "SEEDED", "PLAIN", "ODD", "SYSTEM")}


def password() -> str:
    """The way an OTP is made that should not be."""
    return f"{RNG.randrange(10**6):06}"


def seed_all() -> None:
    """As a task does that wants its own numbers to be predictable."""
    random.seed(42)
    for generator in (RNG, SEEDED, BARE, PLAIN, ODD, PAIR, HIDDEN[0]["deep"][0]):
        generator.seed(42)
    PAIR.gauss(0, 1)


def late(seed: int | None = None) -> list[float]:
    """Of a module that is imported by the first job that needs it."""
    from tests.jobs import chance_late

    drawn = [chance_late.RNG.random(), chance_late.ODD.random()]
    if seed is not None:
        chance_late.RNG.seed(seed)
        chance_late.ODD.seed(seed)
    return drawn
