"""Tasks that take memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.jobs.basic import until_gone, witness

_MIB = 1024 * 1024
_TAKE = "import sys, time; block = bytearray(b'x') * int(sys.argv[1]); open(sys.argv[2], 'w').close(); time.sleep(60)"
_DISOWN = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"


def hold(mib: int, gate: str = "", started: str = "") -> int:
    """Take memory, really: every page is written to. Then wait until the file `gate` is gone."""
    block = bytearray(b"x") * (mib * _MIB)
    if gate:
        until_gone(gate, started)
    return len(block)


def hold_for(mib: int, seconds: float, code: int | None = None) -> None:
    """Take memory for that long. Then end the process with this exit code, if there is one."""
    block = bytearray(b"x") * (mib * _MIB)
    time.sleep(seconds)
    if code is not None:
        os._exit(code)
    del block


def hold_in_a_child(mib: int, touched: str, started: str) -> None:
    """The same in a process below that has left the session and was disowned."""
    witness(started, "started")
    taker = [sys.executable, "-c", _TAKE, str(mib * _MIB), touched]
    subprocess.run([sys.executable, "-c", _DISOWN, *taker], check=True)
    time.sleep(60)


def share_with_children(mib: int, children: int, gate: str, started: str) -> int:
    """Memory that several processes share counts once."""
    block = bytearray(b"x") * (mib * _MIB)
    pids = []
    for _ in range(children):
        pid = os.fork()
        if pid == 0:
            until_gone(gate)
            os._exit(0)
        pids.append(pid)
    until_gone(gate, started)
    for pid in pids:
        os.waitpid(pid, 0)
    return len(block)


def too_much() -> None:
    raise MemoryError("no room for the report")
