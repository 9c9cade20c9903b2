"""Named places where a test can inject a failure. A no-op unless FUSION_FAILPOINTS is set.

`FUSION_FAILPOINTS="claim.after_reply=kill@3;turn.before=sleep:2"`: the third time that the process reaches the place, it SIGKILLs itself.
Every call of a script is two such places: `<script>.before`, and `<script>.after`, when the reply has arrived.

Actions: kill, stop (SIGSTOP), exit:<code>, raise:<OSError|MemoryError|...>, sleep:<seconds>, and wait:<path>. For wait, once a directory for
<path> exists, the first process to get there writes its pid to <path> and waits until that is removed. `<path>.met` lets all others pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable


def _nothing(name: str) -> None:
    return None


class _Armed:
    """The parsed FUSION_FAILPOINTS: the action of each place, and how often each was passed. Call it to pass a place."""

    def __init__(self, spec: str) -> None:
        self._plan: dict[str, tuple[str, int]] = {}
        self._hits: dict[str, int] = {}
        for item in filter(None, (part.strip() for part in spec.split(";"))):
            name, _, action = item.partition("=")
            action, _, nth = action.partition("@")
            self._plan[name] = (action, int(nth or 1))

    def __call__(self, name: str) -> None:
        planned = self._plan.get(name)
        if planned is None:
            return
        self._hits[name] = self._hits.get(name, 0) + 1
        action, nth = planned
        if self._hits[name] == nth or (self._hits[name] > nth and action.startswith("wait:")):
            _strike(action)


def _strike(action: str) -> None:
    import builtins
    import signal
    import time

    verb, _, value = action.partition(":")
    if verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif verb == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif verb == "exit":
        os._exit(int(value))
    elif verb == "raise":
        raise getattr(builtins, value)(f"failpoint raised {value}")
    elif verb == "sleep":
        time.sleep(float(value))
    elif verb == "wait":
        try:
            with open(f"{value}.met", "x") as file:
                file.write(str(os.getpid()))
        except (FileExistsError, FileNotFoundError):
            return
        os.link(f"{value}.met", value)  # it exists only with its pid in it
        while os.path.exists(value):
            time.sleep(0.005)
    else:
        raise ValueError(
            f"FUSION_FAILPOINTS: unknown action {action!r}; use kill, stop, exit:N, raise:NAME, sleep:S or wait:PATH"
        )


_spec = os.environ.get("FUSION_FAILPOINTS")
failpoint: Callable[[str], None] = _Armed(_spec) if _spec else _nothing
#: True if places may do something.
armed = bool(_spec)
