"""What a job's process has cost until its task runs. Imports next to nothing itself."""

from __future__ import annotations

import os
import resource
import sys


def own() -> dict[str, int]:
    """Minor page faults since the fork, bytes of memory that no other process shares, descriptors."""
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    with open("/proc/self/smaps_rollup") as rows:
        private = sum(int(row.split()[1]) for row in rows if row.startswith("Private_"))
    return {"faults": faults, "private": private * 1024, "descriptors": len(os.listdir("/proc/self/fd")) - 1}


def loaded() -> dict[str, int]:
    """The modules of Fusion that are loaded, and the resident bytes."""
    with open("/proc/self/statm") as row:
        resident = int(row.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"modules": sum(name.partition(".")[0] == "fusion" for name in sys.modules), "resident": resident}


def nothing() -> None:
    """Do nothing."""


def fail() -> None:
    """Fail."""
    raise ValueError("it failed")
