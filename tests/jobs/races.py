"""Tasks that end at an instant at which somebody stops them."""

from __future__ import annotations

import os
import time

from fusion import get_current_job
from tests.jobs.basic import witness


def ends_at(path: str, instant: float) -> str:
    """Sleeps most of the time, so that its neighbours can run, and watches the clock at the end."""
    witness(path, "ran")
    time.sleep(max(0.0, instant - time.time() - 0.002))
    while time.time() < instant:
        pass
    return path


def told(job: object, connection: object, result: object) -> None:
    """A callback on_success."""
    current = get_current_job()
    assert current is not None
    fd = os.open(str(result), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"told {current.id} {os.getpid()}\n".encode())
    os.close(fd)
