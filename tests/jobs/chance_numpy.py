"""numpy's generators, made on import."""

from __future__ import annotations

import numpy.random as numbers

numbers.seed(7)
RNG = numbers.default_rng()
SEEDED = numbers.default_rng(5)
OLD = numbers.RandomState(5)
OTHER_OLD = numbers.RandomState(numbers.PCG64(5))
TWISTER = numbers.Generator(numbers.MT19937(5))
PHILOX = numbers.Generator(numbers.Philox(5))
SEEDS = numbers.SeedSequence(3)


def draw() -> dict[str, float]:
    """One number of each."""
    names = ("RNG", "SEEDED", "OLD", "OTHER_OLD", "TWISTER", "PHILOX")
    return {"global": float(numbers.random()), "gauss": float(OLD.randn())} | {
        name.lower(): float(globals()[name].random()) for name in names
    }


def seed_all() -> None:
    numbers.seed(42)
    OLD.seed(42)
    OLD.randn()
    RNG.bit_generator.state = numbers.PCG64(42).state
