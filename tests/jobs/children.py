"""Tasks that start processes, and fail if those die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import psutil

from tests.jobs.basic import witness


def program(seen: str, seconds: float = 60) -> str:
    """Waits for a program, and fails as that does."""
    code = "import sys, time; from tests.jobs.basic import witness; witness(sys.argv[1], 'here'); time.sleep(float(sys.argv[2]))"
    subprocess.run([sys.executable, "-c", code, seen, str(seconds)], check=True)
    return "done"


def _work(seen: str, seconds: float) -> None:
    witness(seen, "here")
    time.sleep(seconds)


def pool(seen: str, seconds: float = 60) -> str:
    with ProcessPoolExecutor(1) as executor:
        executor.submit(_work, seen, seconds).result()
    return "done"


def own_mistake(seen: str, gate: str) -> None:
    """Fails by itself, as soon as there is a file."""
    subprocess.run(["true"], check=True)
    witness(seen, "here")
    while not os.path.exists(gate):
        time.sleep(0.005)
    raise ValueError("its own")


def stops_the_worker() -> None:
    """The worst of tasks: it signals its own process and its worker, and fails."""
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGTERM)
    raise ValueError("every time")
