"""Hints what to use in place of RQ's names that are not here. A name that is missing raises an error with this, and is never a stub."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from fusion.hints import is_import

PAGE = "docs/from-rq.md"

#: RQ's name, and what to use instead.
_INSTEAD = {
    "Connection": "give connection= to Queue, Job.fetch and Worker; RQ has no Connection since 2.0, `fusion.Connection` is one",
    "WorkerPool": "import it from fusion.rq.worker_pool, as in RQ, or run `fusion start -n N`",
    "send_stop_execution_command": "use send_stop_job_command: a job has one run at a time",
    "push_connection": "give connection= to Queue, Job.fetch and Worker; or use fusion.push_connection",
    "pop_connection": "give connection= to Queue, Job.fetch and Worker; or use fusion.pop_connection",
    "use_connection": "give connection= to Queue, Job.fetch and Worker; or use fusion.push_connection",
    "PUBSUB_CHANNEL_TEMPLATE": "use fusion.rq.command: send_shutdown_command, send_stop_job_command, send_kill_horse_command",
}


def missing(module: str, name: str) -> Exception:
    """Return the error for a name that a module of `fusion.rq` does not have: an ImportError for `from MODULE import NAME`, which would hide the
    text of an AttributeError. `__getattr__` of the module calls this."""
    text = f"module {module!r} has no attribute {name!r}"
    if name.startswith("__"):
        return AttributeError(text)
    instead = f"{_INSTEAD.get(name) or 'it is not supported, or RQ has none'}: see {PAGE}"
    if is_import(sys._getframe(2)) and find_spec(f"fusion.rq.{name}") is None:
        return ImportError(f"cannot import name {name!r} from {module!r}; {instead}", name=module)
    return AttributeError(f"{text}; {instead}")


def refused(what: str, instead: str) -> NotImplementedError:
    """Return the error for a part of RQ's surface that can't be had: `what` it is, and what to use instead."""
    return NotImplementedError(f"{what} is not supported by fusion.rq; {instead}: see {PAGE}")
