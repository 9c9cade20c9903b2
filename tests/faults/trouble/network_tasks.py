"""Tasks of the tests about slow and broken lines."""

from __future__ import annotations

import os
import time
from pathlib import Path


def large(size: int, begun: str, go: str) -> str:
    """Touch `begun`, wait until `go` is removed, and return that many characters."""
    Path(begun).touch()
    while os.path.exists(go):
        time.sleep(0.01)
    return "x" * size
