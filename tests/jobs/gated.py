"""A task module whose import is seen: it notes the importing process, and waits while the gate file is there."""

from __future__ import annotations

import os
import time

with open(os.environ["GATED_WITNESS"], "a") as _file:
    _file.write(f"{os.getpid()}\n")
while os.path.exists(os.environ.get("GATED_GATE", "")):
    time.sleep(0.005)


def parent() -> list[int]:
    """Own pid and parent's pid."""
    return [os.getpid(), os.getppid()]
