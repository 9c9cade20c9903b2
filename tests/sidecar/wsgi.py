"""The application that real servers of `test_real_servers.py` serve. It imports `code_of_the_site`, which a test changes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable

import code_of_the_site  # type: ignore[import-not-found]

from fusion import EmbeddedWorker

logging.basicConfig(level=logging.INFO, format="%(process)d %(name)s: %(message)s")
EmbeddedWorker("s").start()
os.write(1, f"web {os.getpid()} serves\n".encode())


def application(environ: dict[str, object], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Say which code this is."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [code_of_the_site.VERSION]
