"""Tasks of a shop."""

from __future__ import annotations

import os
import time


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.05)
    return "found"


def charge(amount):
    if amount < 0:
        raise ValueError(f"{amount} is no amount")
    return {"charged": amount}
