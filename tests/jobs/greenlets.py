"""A task module as a service has it that runs on gevent: the standard library is patched when it is imported. Never import it in a test."""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import subprocess  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import gevent  # noqa: E402

from tests.jobs.basic import until_gone, witness  # noqa: E402


def beside(gate: str, seen: str) -> str:
    """A co-runner."""
    return until_gone(gate, seen)


def waits(seen: str) -> None:
    """For longer than it may."""
    witness(seen, "here")
    time.sleep(600)


def swallows(seen: str) -> None:
    """In greenlets, whatever is raised."""
    witness(seen, "here")

    def turn() -> None:
        while True:
            try:
                gevent.sleep(60)
            except BaseException:
                pass

    while True:
        try:
            gevent.joinall([gevent.spawn(turn) for _ in range(3)])
        except BaseException:
            pass


def works(times: int) -> list[int]:
    """Greenlets, a thread that is one, and a program."""
    found = [job.value for job in gevent.joinall([gevent.spawn(_double, n) for n in range(times)])]
    thread = threading.Thread(target=found.append, args=(-1,))
    thread.start()
    thread.join()
    return [*found, subprocess.run(["true"], check=False).returncode]


def _double(n: int) -> int:
    gevent.sleep(0.01)
    return 2 * n


def hook() -> None:
    """A before_fork of a module that patches."""
    Path("/dev/null").touch()
