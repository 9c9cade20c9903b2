"""The memory limit of one job: its processes are measured from outside, since a task that runs wild does not measure itself."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any

from fusion.exceptions import ConfigurationError
from fusion.executors.base import Executor, KillCause
from fusion.kernel import sentences

#: Seconds between two measurements, and so the longest time for which a job can exceed its limit.
_INTERVAL = 0.5
_MIB = 1024 * 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")
_NO_LIMIT = float("inf")


class JobMemory:
    """Kills the processes of a job that together hold more than `limit` MiB; does nothing without a limit.

    ConfigurationError if memory can't be measured here.
    """

    def __init__(self, limit: int | None, executor: Executor) -> None:
        self._limit, self._executor = limit, executor
        self._measure_at = 0.0
        if limit and not sys.platform.startswith("linux") and _psutil() is None:
            raise ConfigurationError(
                "--max-job-memory needs psutil on this system; pip install 'fusion-queue[worker]', or leave the limit out",
                code="FUS-214",
            )

    @property
    def next_at(self) -> float:
        """Monotonic time of the next measurement; inf while nothing runs, or without a limit."""
        return self._measure_at if self._limit and self._executor.busy else _NO_LIMIT

    def tick(self, now: float) -> None:
        """Measure every running job, if that is due."""
        if not self._limit or now < self._measure_at:
            return
        self._measure_at = now + _INTERVAL
        for run in self._executor.running:
            pid = None if run.killed else self._executor.pid(run)  # most jobs are over before their pid is known
            if pid is not None and (held := self._held(pid)) > self._limit * _MIB:
                run.detail = sentences.HELD_MEMORY.format(n=f"{held / _MIB:.0f}", n_limit=self._limit)
                self._executor.kill(run, KillCause.MEMORY)

    def _held(self, pid: int) -> int:
        assert self._limit is not None
        processes = tree(pid)
        held = sum(map(resident, processes))
        if held > self._limit * _MIB and len(processes) > 1:
            held = sum(map(proportional, processes))  # `resident` counted shared pages once for each process
        return held


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants. Orphans are included, as the process adopts them (see `linux.become_subreaper`)."""
    if not sys.platform.startswith("linux"):
        return _psutil_tree(pid)
    found = [pid]
    for parent in found:
        found += (child for child in _children(parent) if child not in found)
    return found


def _children(pid: int) -> Iterable[int]:
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                yield from map(int, file.read().split())
    except OSError:
        return


def resident(pid: int) -> int:
    """Return the resident bytes of a process, with shared pages; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return _psutil_resident(pid)


def proportional(pid: int) -> int:
    """Return the bytes of a process in memory. A page that n processes share counts as one n-th."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
    except (OSError, StopIteration):
        return resident(pid)


def _psutil() -> Any:
    try:
        return importlib.import_module("psutil")
    except ImportError:
        return None


def _psutil_tree(pid: int) -> list[int]:
    psutil = _psutil()
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return [pid]


def _psutil_resident(pid: int) -> int:
    psutil = _psutil() if not sys.platform.startswith("linux") else None
    if psutil is None:
        return 0
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
