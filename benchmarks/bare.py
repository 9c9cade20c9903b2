"""The floor that one process per job stands on: a serial loop that forks a child, which reads one frame, decodes it, calls a task, writes
the outcome and exits. No Redis, no lease, no timeout, no supervision.

`python -m benchmarks.bare TASK MODULES...` runs the task until it is ended, with these modules imported before it forks.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import struct
import sys
from collections.abc import Callable
from importlib import import_module

_LENGTH = struct.Struct(">I")


def one(job: bytes, task: Callable[..., object]) -> None:
    """Fork a child, have it run one job and wait for its end."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        head = theirs.recv(4)
        _name, _instance, args, kwargs = json.loads(theirs.recv(_LENGTH.unpack(head)[0]))
        outcome = json.dumps(["finished", task(*args, **kwargs)]).encode()
        theirs.sendall(_LENGTH.pack(len(outcome)) + outcome)
        os._exit(0)
    theirs.close()
    ours.sendall(_LENGTH.pack(len(job)) + job)
    head = ours.recv(4)
    json.loads(ours.recv(_LENGTH.unpack(head)[0]))
    os.waitpid(pid, 0)
    ours.close()


def main(name: str, modules: list[str]) -> None:
    """Run jobs without end."""
    for module in modules:
        import_module(module)
    where, _, attribute = name.rpartition(".")
    task, job = getattr(import_module(where), attribute), json.dumps([name, None, [], {}]).encode()
    gc.collect()
    gc.freeze()
    while True:
        one(job, task)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
