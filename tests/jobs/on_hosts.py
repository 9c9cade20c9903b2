"""Tasks that record the host on which they run."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from tests.jobs.basic import witness


def hold(directory: str) -> str:
    """Run until the file `gate-HOST` is gone; return the host's name."""
    host = socket.gethostname()
    witness(f"{directory}/seen", f"began-{host}")
    while os.path.exists(f"{directory}/gate-{host}"):
        time.sleep(0.01)
    witness(f"{directory}/seen", f"ended-{host}")
    return host


def short(directory: str) -> str:
    """Record that the job ran; return the host's name."""
    host = socket.gethostname()
    witness(f"{directory}/seen", f"began-{host}")
    return host


def make_gate(directory: Path, host: str) -> Path:
    """`hold` runs on that host until this file is gone."""
    gate = directory / f"gate-{host}"
    gate.touch()
    return gate
