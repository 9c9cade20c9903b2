"""Tasks that take down what they share with others, and others."""

from __future__ import annotations

import os
import signal
import time

import psutil

from tests.jobs.basic import witness


def takes_its_fork_server(path: str, after: float = 0.3) -> None:
    witness(path, "pill")
    time.sleep(after)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def takes_its_worker(path: str, after: float = 0.3) -> None:
    """With everything in its process group."""
    witness(path, "pill")
    time.sleep(after)
    worker = psutil.Process(os.getppid()).ppid()
    os.killpg(os.getpgid(worker), signal.SIGKILL)
    time.sleep(60)


def takes_its_worker_alone(path: str, after: float = 0.3) -> None:
    """Nothing else of its group, such as its supervisor."""
    witness(path, "pill")
    time.sleep(after)
    os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGKILL)
    time.sleep(60)


def long(path: str, seconds: float = 1.5) -> str:
    witness(path, "here")
    time.sleep(seconds)
    witness(path, "done")
    return "done"
