"""Writes out what jobs have printed, in a thread of its own: a pipe that nobody reads holds up nothing else."""

from __future__ import annotations

import threading
from time import sleep

from fusion.forkserver.horse import flush_stdio

#: Seconds between two writes.
_EVERY = 0.05


class Flusher:
    """A thread that flushes stdout and stderr soon after it was told to."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self._thread: threading.Thread | None = None

    def flush_soon(self) -> None:
        """Have it done, in a moment. From any thread."""
        if self._told.is_set():
            return
        self._told.set()
        if self._thread is None:
            thread = threading.Thread(target=self._flush, name="fusion-flusher", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more: the next job asks again
                self._told.clear()
            else:
                self._thread = thread

    def _flush(self) -> None:
        while True:
            self._told.wait()
            self._told.clear()
            flush_stdio()
            sleep(_EVERY)
