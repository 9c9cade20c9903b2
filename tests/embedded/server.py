"""A web server in small, as far as processes go: `server.py N [preload]`. It forks N web processes and ends them as gunicorn does.

The application starts an EmbeddedWorker for the queue `s`: each web process does, or with `preload` the server before it forks.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

from fusion import EmbeddedWorker


def application() -> None:
    EmbeddedWorker("s").start()


def ended(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def main(count: int, preload: bool) -> None:
    if preload:
        application()
    webs = set()
    for _ in range(count):
        if not (pid := os.fork()):
            signal.signal(signal.SIGTERM, ended)
            if not preload:
                application()
            print(f"web {os.getpid()} serves", flush=True)
            while True:
                time.sleep(60)
        webs.add(pid)

    def pass_on(number: int, frame: FrameType | None) -> None:
        for pid in webs:
            os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    while webs:
        webs.discard(os.waitpid(-1, 0)[0])  # whoever ended, also a worker


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.INFO, format="%(process)d %(name)s: %(message)s")
    main(int(sys.argv[1]), "preload" in sys.argv)
