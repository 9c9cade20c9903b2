"""A module that puts something of its own around `os.register_at_fork`, and a hook before each fork that starts a thread once."""

from __future__ import annotations

import os
import threading
from typing import Any

from tests.jobs import hooks

_real = os.register_at_fork
_gate = threading.Event()


def register(**hooks: Any) -> None:
    """Register the hooks."""
    _real(**hooks)


os.register_at_fork = register


def before_fork() -> None:
    """The fork server has a second thread from now on."""
    if threading.active_count() == 1:
        threading.Thread(target=_gate.wait, daemon=True).start()


def is_mine() -> list[Any]:
    """Whether this module's function is still in its place, and how often locks were made anew."""
    return [os.register_at_fork is register, hooks.counting.renewed, threading.active_count()]
