"""Check this machine, and its kernel settings if Redis runs here too."""

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

#: File descriptors that a worker with several slots needs, with a reserve.
_FILES = 1024
_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")


def files(look: Look) -> Iterator[Finding]:
    """Report a low limit of open files on this machine."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        what = f"a process may open {soft} files here; a worker with many slots needs more"
        yield Finding("FUS-420", "warn", "files", "", what, "ulimit -n 65536\nin a unit of systemd: LimitNOFILE=65536")


def kernel(look: Look) -> Iterator[Finding]:
    """Report kernel settings that Redis advises against, if Redis runs on this machine."""
    if not _redis_is_here(look):
        return
    if "[always]" in _read(_THP):
        what = "transparent huge pages are on (`always`): Redis forks slowly, and answers late while it saves"
        yield Finding("FUS-421", "note", "kernel", "", what, f"echo madvise > {_THP}")
    if _read(_OVERCOMMIT).strip() == "0" and look.server.info.get("aof_enabled") is not None:
        what = "vm.overcommit_memory is 0: Redis may fail to save when memory is scarce"
        yield Finding("FUS-422", "note", "kernel", "", what, "sysctl vm.overcommit_memory=1")


def settings(look: Look) -> Iterator[Finding]:
    """Report settings of this process that are valid but risky in the long run."""
    chosen = look.settings
    if chosen.allow_eviction:
        what = f"allow_eviction is on (from {chosen.origin_of('allow_eviction')}): a Redis that loses jobs is accepted"
        yield Finding("FUS-423", "warn", "settings", "allow_eviction", what, "unset FUSION_ALLOW_EVICTION")
    if chosen.lease < 3 * chosen.socket_timeout:
        what = f"the lease of {chosen.lease:g} s outlives no slow answer of Redis (socket_timeout is {chosen.socket_timeout:g} s)"
        yield Finding("FUS-424", "warn", "settings", "lease", what, f"export FUSION_LEASE={3 * chosen.socket_timeout:g}")


def versions(look: Look) -> Iterator[Finding]:
    """Report workers of different versions, and data of an older layout. A program too old for the data fails before any check."""
    found = sorted({worker.version for worker in look.workers if worker.version})
    if len(found) > 1:
        old = [worker.name for worker in look.workers if worker.version == found[0]]
        what = f"workers of several versions run: {', '.join(found)}; {some(old)} of {found[0]}"
        yield Finding(
            "FUS-425",
            "note",
            "versions",
            "",
            what,
            "kill -HUP the supervisors (systemctl reload fusion) of those of the older one",
        )
    stored = look.schema
    if look.queue_names and stored.version < VERSION:
        what = f"the data have layout {stored.version}, this program writes {VERSION}: what is new in it is refused"
        yield Finding("FUS-426", "note", "versions", "", what, f"{look.program} schema --raise, once no older process runs")


def _redis_is_here(look: Look) -> bool:
    """Return True if the process here with the server's pid is a Redis or Valkey server."""
    pid = look.server.info.get("process_id")
    return bool(pid) and any(name in _read(Path(f"/proc/{pid}/comm")) for name in ("redis", "valkey"))


def _read(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes()[:200])
    except OSError:
        return ""
