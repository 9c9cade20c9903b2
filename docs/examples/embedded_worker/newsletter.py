"""The tasks of the site: a module of their own, which the worker imports and the site need not."""

from __future__ import annotations

import time


def send(address: str) -> str:
    time.sleep(0.2)  # a mail server that takes its time
    return f"sent to {address}"
