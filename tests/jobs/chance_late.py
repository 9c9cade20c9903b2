"""Imported by a task that is under way."""

from __future__ import annotations

import random

from tests.jobs.chance import Odd

RNG = random.Random(9)
ODD = Odd(random.getrandbits(60))
