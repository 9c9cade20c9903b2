"""The same no-op in a module that imports what real tasks import."""

from __future__ import annotations

import requests

import fusion

__all__ = ["fusion", "noop", "requests"]


def noop() -> None:
    return None
