"""Ends processes that a killed fork server left, so that no job runs twice at the same time.

The horses die with their fork server. The worker adopts processes that they had disowned, as it is a subreaper.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Set
from signal import SIGKILL

from fusion.kernel.linux import Children, become_subreaper

#: Seconds in which they must end. A process that can't be killed (a dead disk) is not waited for longer.
LIMIT = 2.0
_PAUSE = 0.002

log = logging.getLogger("fusion.worker")


class _Adopting:
    """`others`: earlier children of this process; None while it does not adopt orphans."""

    others: Set[int] | None = None


def adopt() -> None:
    """Make this process adopt orphans among its descendants. Only for a process that is nothing but a worker."""
    become_subreaper()
    _Adopting.others = frozenset(_children())


def end_orphans(servers: Set[int]) -> None:
    """Kill processes that dead fork servers left, and wait until they are gone. `servers`: live fork servers; they keep their
    descendants."""
    if _Adopting.others is None:
        return
    deadline = time.monotonic() + LIMIT
    clean = 0
    while clean < 2:  # reading the list is not atomic: the second read finds what the first missed
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
            # A fork server has its own session, and no process can join another session: processes in ours were started by us.
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
