"""The floor that one process per job stands on: a serial loop that forks a child, which reads one frame, decodes it, calls a no-op, writes
the outcome and exits. No Redis, no lease, no timeout, no supervision."""

from __future__ import annotations

import gc
import json
import os
import socket
import struct
import sys
import time

from benchmarks.tasks import noop

_LENGTH = struct.Struct(">I")
_JOB = json.dumps(["benchmarks.tasks.noop", None, [], {}]).encode()


def one() -> None:
    """Fork a child, have it run one job and wait for its end."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        head = theirs.recv(4)
        _name, _instance, args, kwargs = json.loads(theirs.recv(_LENGTH.unpack(head)[0]))
        outcome = json.dumps(["finished", noop(*args, **kwargs)]).encode()  # type: ignore[func-returns-value]
        theirs.sendall(_LENGTH.pack(len(outcome)) + outcome)
        os._exit(0)
    theirs.close()
    ours.sendall(_LENGTH.pack(len(_JOB)) + _JOB)
    head = ours.recv(4)
    json.loads(ours.recv(_LENGTH.unpack(head)[0]))
    os.waitpid(pid, 0)
    ours.close()


def main(jobs: int) -> None:
    """Print jobs/s."""
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    for _ in range(jobs):
        one()
    print(jobs / (time.perf_counter() - started))


if __name__ == "__main__":
    main(int(sys.argv[1]))
