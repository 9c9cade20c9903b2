"""Parts of the standard library that no module may replace in a process which forks, or in which jobs run beside each other."""

from __future__ import annotations

import _thread
import os
import select
import signal
import time

#: gevent and eventlet replace them, and what they put there waits for a loop of their own.
_PRIMITIVES = {
    f"{module.__name__}.{name}": (module, name, getattr(module, name))
    for module, names in (
        (os, "fork read write waitpid"),
        (select, "select poll"),
        (signal, "signal"),
        (time, "sleep"),
        (_thread, "start_new_thread allocate_lock"),
    )
    for name in names.split()
    if hasattr(module, name)
}


def replaced() -> str:
    """What is not as it was when this module was loaded, as the predicate of a sentence about a module; empty if all is."""
    found = [path for path, (module, name, ours) in _PRIMITIVES.items() if getattr(module, name, None) is not ours]
    return f"replaces {', '.join(found[:3])}{' and more' * (len(found) > 3)} (gevent, eventlet or the like)" if found else ""


def unfit(module: str) -> str:
    """The reason for which jobs can't run beside each other in this process, in which `module` was imported last; empty if they can."""
    if not (reason := replaced()):
        return ""
    return f"{module} {reason}: jobs that share a process would hang; start the worker with --executor process or pool"
