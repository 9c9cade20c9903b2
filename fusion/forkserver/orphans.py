"""A worker ends what a killed fork server left behind, before a job runs again beside itself.

The horses die with their fork server. Processes that they had disowned come to the worker, as it is a subreaper.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Set
from signal import SIGKILL

from fusion.kernel.linux import Children, become_subreaper

#: Seconds in which they must be gone; what can't be killed (a dead disk) is not waited for.
LIMIT = 2.0
_PAUSE = 0.002

log = logging.getLogger("fusion.worker")


class _Adopting:
    """`others`: children of this process from before; None while orphans don't come here."""

    others: Set[int] | None = None


def adopt() -> None:
    """From here on orphans below this process become its children. Only for a process that is a worker and nothing else."""
    become_subreaper()
    _Adopting.others = frozenset(_children())


def end_orphans(servers: Set[int]) -> None:
    """Kill what dead fork servers left, and wait until it is gone. `servers`: those that live; what is below them does not come here."""
    if _Adopting.others is None:
        return
    deadline = time.monotonic() + LIMIT
    clean = 0
    while clean < 2:  # reading the list is not atomic: a second look finds what the first one missed
        orphans = _orphans(servers)
        clean = 0 if orphans else clean + 1
        for pid in orphans:
            _kill(pid)
        if orphans and time.monotonic() > deadline:
            log.error("process(es) %s of a dead fork server can't be killed; a job of it may run beside them", orphans)
            return
        if orphans:
            time.sleep(_PAUSE)


def _orphans(servers: Set[int]) -> list[int]:
    own, others = os.getsid(0), _Adopting.others or frozenset()
    found = []
    for pid in _children():
        try:
            # A fork server has a session of its own, and nobody can join another's: what shares ours, we started.
            if pid not in servers and pid not in others and os.getsid(pid) != own and not _reaped(pid):
                found.append(pid)
        except ProcessLookupError:
            continue
    return found


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _kill(pid: int) -> None:
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, SIGKILL)
        os.kill(pid, SIGKILL)
    except OSError:
        pass


def _children() -> list[int]:
    children = Children()
    try:
        return children.pids()
    finally:
        if children.fd >= 0:
            os.close(children.fd)
