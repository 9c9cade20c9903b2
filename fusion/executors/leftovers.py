"""Tells the log of what jobs leave in warm processes."""

from __future__ import annotations

import logging

from fusion.executors.base import Run

#: Kinds that are told; reasons to replace a process that are none.
_MOST, _NONE = 100, ("isolated", "memory", "jobs")


class LeftoverLog:
    """Warns once of each kind: a task that leaves something each time makes a warm process as slow as a fresh one."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told_of: set[str] = set()

    def found(self, run: Run, left: str) -> None:
        """A job's process is replaced for this reason."""
        if left in _NONE or left in self._told_of or len(self._told_of) >= _MOST:
            return
        self._told_of.add(left)
        about = run.claimed.fields.get(b"description", b"?").decode("utf-8", "replace")
        text = "job %s (%s) left in its process: %s; a fresh one takes its place, as for every job that does so"
        self._log.warning(text, run.claimed.id, "".join(c if c.isprintable() else "?" for c in about[:200]), left)
