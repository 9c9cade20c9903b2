"""What every contender runs."""

from __future__ import annotations


def noop() -> None:
    return None
