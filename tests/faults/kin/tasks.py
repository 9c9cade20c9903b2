"""A job of a graph: tells of its begin and end, and has its parents' results for a look."""

from __future__ import annotations

import os
import time

from fusion import get_current_job


def node(path: str, kind: str, seconds: float, mended: str) -> str:
    """Returns its id."""
    current = get_current_job()
    assert current is not None
    _note(path, f"begin {current.id} {os.getpid()}")
    time.sleep(seconds)
    if kind == "fail" or (kind == "flaky" and current.attempts == 0) or (kind == "broken" and not os.path.exists(mended)):
        raise ValueError(f"{kind}, as it is made")
    _note(path, f"end {current.id} {os.getpid()}")
    return current.id


def _note(path: str, line: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)
