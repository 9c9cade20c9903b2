"""Tasks of stock RQ's jobs. They import nothing of Fusion; each run writes of itself by one O_APPEND write."""

from __future__ import annotations

import os
import time

#: The environment's name for the witness file.
WITNESS = "BESIDE_WITNESS"


def _say(what: str, name: str) -> None:
    fd = os.open(os.environ[WITNESS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, f"{what} {name} {os.getpid()}\n".encode())
    os.close(fd)


def visit(name: str, seconds: float) -> str:
    _say("begin", name)
    time.sleep(seconds)
    _say("end", name)
    return name


def refuse(name: str) -> None:
    _say("begin", name)
    raise ValueError("no")
