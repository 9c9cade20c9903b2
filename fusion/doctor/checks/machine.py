"""This machine, and Redis's if it is the same."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fusion.doctor.finding import Finding, some
from fusion.store.layout.schema import VERSION

if TYPE_CHECKING:
    from fusion.doctor.look import Look

#: Descriptors that a worker with some slots needs, with room.
_FILES = 1024
_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")


def files(look: Look) -> Iterator[Finding]:
    """How many files a process here may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        what = f"a process may open {soft} files here; a worker with many slots needs more"
        yield Finding("warn", "files", "", what, "ulimit -n 65536\nin a unit of systemd: LimitNOFILE=65536")


def kernel(look: Look) -> Iterator[Finding]:
    """What Redis asks of its kernel, where Redis runs on this machine."""
    if not _redis_is_here(look):
        return
    if "[always]" in _read(_THP):
        what = "transparent huge pages are on (`always`): Redis forks slowly, and answers late while it saves"
        yield Finding("note", "kernel", "", what, f"echo madvise > {_THP}")
    if _read(_OVERCOMMIT).strip() == "0" and look.server.info.get("aof_enabled") is not None:
        what = "vm.overcommit_memory is 0: Redis may fail to save when memory is scarce"
        yield Finding("note", "kernel", "", what, "sysctl vm.overcommit_memory=1")


def settings(look: Look) -> Iterator[Finding]:
    """Settings of this process that are allowed and should not stay."""
    chosen = look.settings
    if chosen.allow_eviction:
        what = f"allow_eviction is on (from {chosen.origin_of('allow_eviction')}): a Redis that loses jobs is accepted"
        yield Finding("warn", "settings", "allow_eviction", what, "unset FUSION_ALLOW_EVICTION")
    if chosen.lease < 3 * chosen.socket_timeout:
        what = f"the lease of {chosen.lease:g} s outlives no slow answer of Redis (socket_timeout is {chosen.socket_timeout:g} s)"
        yield Finding("warn", "settings", "lease", what, f"export FUSION_LEASE={3 * chosen.socket_timeout:g}")


def versions(look: Look) -> Iterator[Finding]:
    """Whether all run the same Fusion; which layout the data have. Who is too old for them never comes to a check."""
    found = sorted({worker.version for worker in look.workers if worker.version})
    if len(found) > 1:
        old = [worker.name for worker in look.workers if worker.version == found[0]]
        what = f"workers of several versions run: {', '.join(found)}; {some(old)} of {found[0]}"
        yield Finding(
            "note", "versions", "", what, "kill -HUP the supervisors (systemctl reload fusion) of those of the older one"
        )
    stored = look.schema
    if look.queue_names and stored.version < VERSION:
        what = f"the data have layout {stored.version}, this program writes {VERSION}: what is new in it is refused"
        yield Finding("note", "versions", "", what, f"{look.program} schema --raise, once no older process runs")


def _redis_is_here(look: Look) -> bool:
    """By its process: the one that has its number here is a server of that kind."""
    pid = look.server.info.get("process_id")
    return bool(pid) and any(name in _read(Path(f"/proc/{pid}/comm")) for name in ("redis", "valkey"))


def _read(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes()[:200])
    except OSError:
        return ""
