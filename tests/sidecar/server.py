"""A web server in small, as far as processes go: `server.py N [preload | reload | twice]`. It forks N web processes and ends them as
gunicorn does, and one more for each TTIN; with 0 it serves itself.

The application starts an EmbeddedWorker for the queue `s`: each web process does, or with `preload` the server before it forks. With `reload` all
that is the child of one that has started it, too, and does nothing more. With `twice` its end sends itself a second TERM, at once.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import NoReturn

from fusion import EmbeddedWorker
from fusion.sidecar.keeper import Keeper


def application() -> None:
    EmbeddedWorker("s").start()


def strike_while_stopping() -> None:
    """Have a signal come as early as it can: the worker was told to end, and nobody waits for it yet."""
    stop = Keeper.stop

    def struck(keeper: Keeper, within: float) -> None:
        stop(keeper, within)
        if within:
            os.kill(os.getpid(), signal.SIGTERM)

    Keeper.stop = struck  # type: ignore[method-assign]


def ended(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def serve(starts: bool) -> NoReturn:
    signal.signal(signal.SIGTERM, ended)
    if starts:
        application()
    os.write(1, f"web {os.getpid()} serves\n".encode())  # in one piece: all write to one file
    while True:
        time.sleep(60)


def main(count: int, preload: bool) -> None:
    if not count:
        serve(True)
    if preload:
        application()
    webs = set()

    def add(number: int = 0, frame: FrameType | None = None) -> None:
        if not (pid := os.fork()):
            serve(not preload)
        webs.add(pid)

    for _ in range(count):
        add()

    def pass_on(number: int, frame: FrameType | None) -> None:
        for pid in webs:
            os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGTTIN, add)
    while webs:
        webs.discard(os.waitpid(-1, 0)[0])  # whoever ended, also a worker


def reloader(arguments: list[str]) -> None:
    application()
    child = subprocess.Popen([sys.executable, *arguments])
    signal.signal(signal.SIGTERM, lambda number, frame: child.terminate())
    child.wait()


if __name__ == "__main__":
    if "twice" in sys.argv:
        strike_while_stopping()
    logging.basicConfig(level=logging.INFO, format="%(process)d %(name)s: %(message)s")
    if sys.argv[2:] == ["reload"]:
        reloader(sys.argv[:2])
    else:
        main(int(sys.argv[1]), "preload" in sys.argv)
