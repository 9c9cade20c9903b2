"""CPU and memory of processes, from /proc."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import psutil


def own(pid: int) -> float:
    """CPU seconds of this process, of its threads and of none of its children, to the nanosecond; 0 if it has ended."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) answers
    except OSError:
        return 0.0


def by_kind(root: int, kinds: Sequence[str]) -> dict[str, float]:
    """CPU seconds of a process and of all below it, by their distance from it; those deeper than there are names count for the last.

    What has ended counts where it was, once it is reaped.
    """
    used = dict.fromkeys(kinds, 0.0)
    for process, depth in tree(psutil.Process(root)):
        try:
            reaped = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        used[kinds[min(depth, len(kinds) - 1)]] += own(process.pid)
        used[kinds[min(depth + 1, len(kinds) - 1)]] += reaped.children_user + reaped.children_system
    return used


def tree(root: psutil.Process) -> Iterator[tuple[psutil.Process, int]]:
    """A process and all below it, each with its distance."""
    depths = {root.pid: 0}
    yield root, 0
    for process in root.children(recursive=True):  # parents come before their children
        try:
            depths[process.pid] = depths.get(process.ppid(), 0) + 1
        except psutil.NoSuchProcess:
            continue
        yield process, depths[process.pid]


def pss(pid: int) -> float:
    """MiB of a process and all below it, shared pages by their share."""
    total = 0
    for process, _ in tree(psutil.Process(pid)):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 1024**2
