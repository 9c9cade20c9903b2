"""Parts of the standard library that no module may replace in a process that forks or runs jobs side by side."""

from __future__ import annotations

import _thread
import os
import select
import signal
import time

#: gevent and eventlet replace these; their versions wait for their own loop.
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
    """Return what was replaced since this module was loaded, as the predicate of a sentence about a module; empty if nothing was."""
    found = [path for path, (module, name, ours) in _PRIMITIVES.items() if getattr(module, name, None) is not ours]
    return f"replaces {', '.join(found[:3])}{' and more' * (len(found) > 3)} (gevent, eventlet or the like)" if found else ""


def unfit(module: str) -> str:
    """Return why jobs can't run side by side in this process after the import of `module`; empty if they can."""
    if not (reason := replaced()):
        return ""
    return f"{module} {reason}: jobs that share a process would hang; start the worker with --executor process or pool"
