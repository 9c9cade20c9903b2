"""The callbacks that run in a job's process after its task, and how long each may take."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fusion.kernel import defaults

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any

#: Fields of a job that name such a function.
CALLBACKS = frozenset((b"on_success", b"on_failure", b"on_stopped"))
#: Seconds a callback may take if its job does not say.
CALLBACK_TIMEOUT = 60.0
#: Seconds that all hooks of middleware may take together when the task is over.
HOOKS_TIMEOUT = 60.0


def callback_limit(spec: dict[str, Any]) -> float:
    """Return the seconds that a callback may take. The stored value may be anything."""
    limit = float(spec.get("timeout") or CALLBACK_TIMEOUT)
    return min(limit, defaults.FURTHEST) if limit > 0 else CALLBACK_TIMEOUT  # NaN is not above 0 either


def callback_limits(fields: Mapping[bytes, bytes]) -> list[float]:
    """Return the seconds of each callback of a job; skip those that can't be read."""
    limits = []
    for key in CALLBACKS:
        if spec := fields.get(key):
            try:
                limits.append(callback_limit(json.loads(spec)))
            except (ValueError, AttributeError, TypeError, RecursionError, OverflowError):
                continue
    return limits


class DueCallback:
    """A callback to run at the job's end: the field that names it, its path, its limit in seconds, its arguments."""

    __slots__ = ("args", "key", "limit", "path")

    def __init__(self, key: bytes, path: str, limit: float, args: tuple[Any, ...]) -> None:
        self.key, self.path, self.limit, self.args = key, path, limit, args
