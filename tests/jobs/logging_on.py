"""Tasks that log, as any code does, and a handler that their settings name."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import Any

log = logging.getLogger("shop.orders")


def logs(text: str) -> list[str]:
    """Lines of three levels, and a warning. Returns the names of the handlers that there are."""
    log.info("info of %s", text)
    log.warning("warning of %s", text)
    logging.getLogger("shop.other").error("error of %s", text, exc_info=ValueError("no"))
    warnings.warn(f"warned of {text}", stacklevel=1)
    return sorted(type(handler).__name__ for handler in logging.root.handlers)


class Threaded(logging.StreamHandler[Any]):
    """A handler with a thread of its own, which no fork has."""

    def __init__(self) -> None:
        super().__init__()
        self._there = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        self._there.set()
        threading.Event().wait()

    def emit(self, record: logging.LogRecord) -> None:
        assert any(thread.name.startswith("Thread-") for thread in threading.enumerate()), "its thread is here"
        super().emit(record)
