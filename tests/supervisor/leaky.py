"""A task module that leaks in the fork server: four MiB with each fork, once the file its environment names is there."""

from __future__ import annotations

import os

_LEAKED: list[bytearray] = []


def _leak() -> None:
    if os.path.exists(os.environ["TEST_LEAK"]):
        _LEAKED.append(bytearray(b"x" * (4 * 1024**2)))


os.register_at_fork(before=_leak)


def noop() -> None:
    return None
