"""Logs what jobs leave behind in warm processes."""

from __future__ import annotations

import logging

from fusion.executors.base import Run

#: Most kinds that are logged; and reasons to replace a process that are no leftovers.
_MOST, _NONE = 100, ("isolated", "memory", "jobs")


class LeftoverLog:
    """Warns once of each kind of leftover: a task that always leaves something makes warm processes as slow as fresh ones."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told_of: set[str] = set()

    def found(self, run: Run, left: str) -> None:
        """Log that a job's process is replaced for this reason."""
        if left in _NONE or left in self._told_of or len(self._told_of) >= _MOST:
            return
        self._told_of.add(left)
        about = run.claimed.fields.get(b"description", b"?").decode("utf-8", "replace")
        text = "job %s (%s) left in its process: %s; a fresh one takes its place, as for every job that does so"
        self._log.warning(text, run.claimed.id, "".join(c if c.isprintable() else "?" for c in about[:200]), left)
