"""Tasks that leave something in their process, and one that sees whether an earlier one did."""

from __future__ import annotations

import contextvars
import decimal
import json
import locale
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

from fusion import get_current_job
from tests.jobs.basic import witness, write_frame

_name = contextvars.ContextVar("name", default="nobody")


def pid(*args: object) -> int:
    return os.getpid()


def _limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, hard))


_LEAVE = {
    "signal mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]),
    "signal handlers": lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    "timers": lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 3600),
    "working directory": lambda: os.chdir("/"),
    "umask": lambda: os.umask(0o001),
    "environment": lambda: os.environ.update(LEFT="behind"),
    "sys.path": lambda: sys.path.append("/left/behind"),
    "nice value": lambda: os.nice(1),
    "resource limits": _limit,
    "standard streams": lambda: os.dup2(os.open("/dev/null", os.O_WRONLY), 2),
    "locale": lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"),
    "interpreter settings": lambda: sys.setrecursionlimit(5000),
    "threads": lambda: threading.Thread(target=time.sleep, args=(600,), daemon=True).start(),
    "child processes": lambda: subprocess.Popen(["sleep", "600"]),
    "process group": lambda: os.setpgid(0, os.getppid()),
}
KINDS = tuple(_LEAVE)


def leave(kind: str) -> int:
    _LEAVE[kind]()
    return os.getpid()


_leaked: list[int] = []


def leak(count: int) -> list[int]:
    """Open this many descriptors, or with -1 all there are, and keep them."""
    try:
        while count:
            _leaked.append(os.open("/dev/null", os.O_RDONLY))
            count -= 1
    except OSError:
        if count > 0:
            raise
    return [os.getpid(), len(_leaked)]


def opens() -> int:
    with open("/dev/null"):
        return os.getpid()


def leave_in_context(word: str) -> list[object]:
    """What it found, before it leaves something of its own in context variables."""
    found: list[object] = [os.getpid(), _name.get(), decimal.getcontext().prec]
    _name.set(word)
    decimal.getcontext().prec = 3
    return found


def hold(size: int) -> int:
    """Take `size` bytes of memory for a moment."""
    bytearray(size)[:: resource.getpagesize()] = b"x" * len(range(0, size, resource.getpagesize()))
    return os.getpid()


def size_of(data: str, back: int = 0) -> list[object]:
    return [os.getpid(), len(data), "x" * back]


def gate(path: str, seen: str = "") -> int:
    """Run until the file at `path` exists."""
    if seen:
        witness(seen, "here")
    while not os.path.exists(path):
        time.sleep(0.002)
    return os.getpid()


def nap(seconds: float, seen: str = "", word: str = "ran") -> int:
    if seen:
        witness(seen, word)
    time.sleep(seconds)
    return os.getpid()


def nap_and_fail(seconds: float, seen: str, word: str) -> None:
    nap(seconds, seen, word)
    raise ValueError("this one always fails")


def swallow_next(seen: str) -> None:
    """Read what comes next on the socket that only Fusion should use, and end with it."""
    witness(seen, "here")
    for fd in range(1024, 1030):
        try:
            socket.socket(fileno=fd).recv(65536)
        except OSError:
            continue
    os._exit(3)


def steal(seen: str, seconds: float = 0.0) -> int:
    """Read what waits on the socket that only Fusion should use, as soon as there is something, and end as if nothing had been."""
    for fd in range(1024, 1030):
        try:
            sock = socket.socket(fileno=os.dup(fd))
            if sock.family != socket.AF_UNIX:
                continue
            sock.settimeout(5)
            if sock.recv(65536):
                witness(seen, "stolen")
            os.set_blocking(fd, True)
        except OSError:
            continue
    time.sleep(seconds)
    return os.getpid()


def forge(fields: str, own: bool) -> int:
    """Write a frame to the worker, over the socket that only Fusion should use; with `own` in the name of its execution."""
    current = get_current_job()
    assert current is not None
    write_frame(json.dumps({**({"execution_id": current.execution_id} if own else {}), **json.loads(fields)}))
    return os.getpid()


def span(seconds: float) -> list[float]:
    """When it began and when it ended."""
    begun = time.monotonic()
    time.sleep(seconds)
    return [begun, time.monotonic()]


def hang_after(job: object, connection: object, result: object) -> None:
    """An on_success callback that does not end by itself."""
    time.sleep(60)
