"""Writes the output of jobs in a separate thread, so that a pipe that nobody reads blocks nothing else."""

from __future__ import annotations

import threading
from time import sleep

from fusion.forkserver.horse import flush_stdio

#: Seconds between two writes.
_EVERY = 0.05


class Flusher:
    """A thread that flushes stdout and stderr soon after a request."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self._thread: threading.Thread | None = None

    def flush_soon(self) -> None:
        """Request a flush. Can be called from any thread."""
        if self._told.is_set():
            return
        self._told.set()
        if self._thread is None:
            thread = threading.Thread(target=self._flush, name="fusion-flusher", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no thread left: the next job asks again
                self._told.clear()
            else:
                self._thread = thread

    def _flush(self) -> None:
        while True:
            self._told.wait()
            self._told.clear()
            flush_stdio()
            sleep(_EVERY)
