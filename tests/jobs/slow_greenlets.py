"""A module that each process imports by itself, as it patches the standard library, and that takes its time. Never import it in a test."""

from __future__ import annotations

import time

from gevent import monkey

time.sleep(1.2)
monkey.patch_all()


def nothing() -> str:
    return "done"
