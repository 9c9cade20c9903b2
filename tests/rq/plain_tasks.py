"""Tasks of a program that does not use `fusion.rq`."""

from __future__ import annotations

import sys


def modules_of_rq() -> list[str]:
    return sorted(name for name in sys.modules if name.startswith("fusion.rq"))
