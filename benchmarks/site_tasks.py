"""The same no-op in a module that imports what real tasks import."""

from __future__ import annotations

import requests

import fusion
from benchmarks import tasks

__all__ = ["fusion", "noop", "requests"]


def noop(payload: str = "") -> None:
    """Leave one byte."""
    tasks.noop(payload)
