"""RQ's exception handlers of a worker. They run in the job's process, which is given their paths: functions of a module, then."""

from __future__ import annotations

import os
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs every job's process 0.6 MB
    from collections.abc import Callable, Iterable
    from typing import Any

VARIABLE = "FUSION_RQ_EXCEPTION_HANDLERS"


def paths_of(handlers: Any) -> str:
    """Return the paths of a worker's handlers in one text. ValueError for what no other process can import."""
    listed: Iterable[Any] = handlers if isinstance(handlers, (list, tuple)) else [handlers]
    return ",".join(map(_path_of, listed))


def _path_of(handler: Any) -> str:
    if isinstance(handler, str):
        return handler
    module, name = getattr(handler, "__module__", ""), getattr(handler, "__qualname__", "")
    if not module or module == "__main__" or not name.isidentifier():
        raise ValueError(
            f"exception handler {handler!r}: it runs in the job's process, so it must be a function of a module, and not of __main__"
        )
    return f"{module}.{name}"


def handlers() -> list[Callable[..., Any]]:
    """Return the handlers of this process's worker, the last one first, as RQ calls them."""
    found = []
    for path in reversed(list(filter(None, os.environ.get(VARIABLE, "").split(",")))):
        module, _, name = path.rpartition(".")
        found.append(getattr(import_module(module), name))
    return found


def handle(job: Any, *error: Any) -> None:
    """Call the handlers until one returns False."""
    for handler in handlers():
        if handler(job, *error) is False:
            return
