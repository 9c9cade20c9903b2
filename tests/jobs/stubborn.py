"""Tasks that do not end by themselves. Each notes `here` and its pid once it has done its mischief."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import subprocess
import sys
import time

from tests.jobs.basic import witness

#: A shell, as it has begun within milliseconds: the limits of these tests are shorter than a busy machine needs to start Python.
_SWALLOW = "trap '' HUP INT QUIT TERM; echo here $2 $$ >>$1; exec sleep 1000"


def _child(path: str, own_session: bool) -> None:
    from fusion import get_current_job

    current = get_current_job()
    assert current is not None
    subprocess.Popen(["/bin/sh", "-c", _SWALLOW, "sh", path, current.id], start_new_session=own_session)


def nothing() -> None:
    return None


def short(path: str) -> None:
    witness(path, "here")
    time.sleep(0.5)


def sleep(path: str) -> None:
    witness(path, "here")
    time.sleep(60)


def spin(path: str) -> None:
    witness(path, "here")
    while True:
        pass


def swallows(path: str) -> None:
    witness(path, "here")
    while True:
        try:
            time.sleep(60)
        except:  # noqa: E722 - what this task is about
            pass


def spins_in_c(path: str) -> None:
    witness(path, "here")
    max(itertools.repeat(0))


def ignores_signals(path: str) -> None:
    for number in (signal.SIGALRM, signal.SIGURG, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.alarm(0)
    sleep(path)


def blocks_signals(path: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    sleep(path)


def leaves_a_child(path: str) -> None:
    _child(path, own_session=False)
    sleep(path)


def leaves_a_daemon(path: str) -> None:
    _child(path, own_session=True)
    sleep(path)


def child_that_swallows(path: str) -> None:
    _child(path, own_session=False)
    swallows(path)


def daemon_that_swallows(path: str) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        swallows(path)
    swallows(path)


def probe() -> dict[str, object]:
    """Everything that an earlier job could have left behind, were its process not its own."""
    mask = os.umask(0)
    os.umask(mask)
    return {
        "cwd": os.getcwd(),
        "umask": mask,
        "environ": hash(tuple(sorted(os.environ.items()))),
        "blocked": sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "handlers": [
            getattr(found := signal.getsignal(number), "__qualname__", str(found)) for number in sorted(signal.valid_signals())
        ],
        "timer": list(signal.getitimer(signal.ITIMER_VIRTUAL)),
        "nice": os.nice(0),
        "path": list(sys.path),
        "recursion": sys.getrecursionlimit(),
        "limits": [list(resource.getrlimit(kind)) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_CORE)],
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "leads its group": os.getpgid(0) == os.getpid(),
    }


def daemon_beside(path: str, gate: str) -> None:
    """Leaves a daemon in a session of its own, two generations away, and a second one below that; says `overlap` if one of an earlier run
    is alive. Ends when the gate is gone."""
    with open(path, "a+") as file:
        file.seek(0)
        daemons = [int(line.split()[2]) for line in file if line.startswith("daemon")]
    if any(_runs(pid) for pid in daemons):
        witness(path, "overlap")
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                os.fork()
                witness(path, "daemon")
                while True:
                    time.sleep(60)
            os._exit(0)
    witness(path, "here")
    while os.path.exists(gate):
        time.sleep(0.005)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
