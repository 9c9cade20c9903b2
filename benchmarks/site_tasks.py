"""The tasks of a site as it comes: a module that imports the bundled tasks, and with them `requests`."""

from __future__ import annotations

import os

import requests

import tasks as bundled
from benchmarks import tasks

__all__ = ["bundled", "fetch", "noop"]


def noop(payload: str = "") -> None:
    """Leave one byte."""
    tasks.noop(payload)


def fetch(payload: str = "") -> None:
    """Send one request to the server at BENCH_HTTP_URL, then leave one byte."""
    requests.get(os.environ["BENCH_HTTP_URL"], timeout=10).raise_for_status()
    tasks.noop(payload)
