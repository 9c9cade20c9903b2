"""Ends all that a measurement started, however the measurement ends: also when it is killed while its workers are stopped.

Every process of a measurement inherits `HOME`. A guard in a session of its own waits for the end of the process that made it.
It then kills each process whose environment names the same home, or whose directory is in it, and removes the home.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

#: Names the directory of one measurement in the environment of all its processes.
HOME = "BENCH_HOME"


@cache
def guarded_home() -> Path:
    """Make a directory for all files of this process's measurements, and start its guard. The path is short: sockets lie in it."""
    made = tempfile.mkdtemp(prefix="fusb", dir="/tmp")
    subprocess.Popen([sys.executable, __file__, made, str(os.getpid())], start_new_session=True, stdin=subprocess.DEVNULL)
    os.environ[HOME] = made
    return Path(made)


def started(made: Path) -> list[int]:
    """Return the processes of this user that the measurement with that home started.

    A Redis server is found by its directory, which is below that home: its title stands where its environment was.
    """
    wanted = f"{HOME}={made}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            directory = (process / "cwd").readlink()
        except OSError:  # it has ended, or belongs to another user
            continue
        if wanted in environment or directory.is_relative_to(made):
            found.append(int(process.name))
    return found


def _wait_for(pid: int) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([process], [], [])


def _clear(made: Path) -> None:
    while pids := started(made):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    shutil.rmtree(made, ignore_errors=True)


if __name__ == "__main__":
    _wait_for(int(sys.argv[2]))
    _clear(Path(sys.argv[1]))
