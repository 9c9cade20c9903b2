"""A module with plain handlers only."""

from __future__ import annotations

import atexit
import logging
import logging.handlers
import sys
import threading

plain = logging.StreamHandler(sys.stderr)
_none = logging.NullHandler()


def swap(path: str) -> None:
    """One handler goes, another comes: as many as before."""
    global _none
    _none = _Writing(path)  # type: ignore[assignment]


def replace_stream(path: str) -> None:
    """Have the handler write to a file from now on; something is in its buffer."""
    plain.setStream(open(path, "w"))  # noqa: SIM115
    plain.stream.write("closed")


def replace_flush(path: str) -> None:
    """Have it do something of its own when it is flushed."""
    plain.flush = lambda: _write(path)  # type: ignore[method-assign]


def unregister(path: str) -> None:
    """Handlers are not to be closed."""
    swap(path)
    atexit.unregister(logging.shutdown)


class _Writing(logging.Handler):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def close(self) -> None:
        """Leave a word."""
        _write(self.path)
        super().close()


def _write(path: str) -> None:
    with open(path, "w") as file:
        file.write("closed")


def hold_a_lock() -> None:
    """Closing the handlers would wait for a thread that never ends."""
    held = threading.Event()

    def hold() -> None:
        """Keep the lock."""
        with plain.lock:  # type: ignore[union-attr]
            held.set()
            threading.Event().wait()

    threading.Thread(target=hold, daemon=True).start()
    held.wait()


def log_to_memory(path: str) -> None:
    """Log a line that is written at exit only."""
    log = logging.getLogger("tests.memory")
    log.addHandler(logging.handlers.MemoryHandler(10, target=logging.FileHandler(path)))
    log.warning("closed")
