"""What Redis, the witness files of jobs and the operating system say of a test's jobs and processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import redis

from fusion.kernel.compression import plain


def status_of(conn: redis.Redis, job_id: str) -> str:
    """`missing` if there is no such job."""
    raw = conn.hget(f"rq:job:{job_id}", "status")
    return raw.decode() if raw else "missing"


def field(conn: redis.Redis, job_id: str, name: str) -> str:
    """A field of a job's hash, compressed or not; empty if it is not there."""
    raw = conn.hget(f"rq:job:{job_id}", name)
    return (
        plain(raw).decode("utf-8", "replace") if raw and name in ("result", "meta") else (raw or b"").decode("utf-8", "replace")
    )


def losses_of(conn: redis.Redis, job_id: str) -> int:
    """The losses that counted against a job that was abandoned, by its events: its hash forgets them when it finishes."""
    events = [event for _, event in conn.xrange("rq:events") if event[b"job_id"] == job_id.encode()]
    return max((int(event[b"lost"]) for event in events if event[b"event"] == b"abandoned"), default=0)


def lines(path: Path) -> Iterator[str]:
    """None of a file that is not there."""
    if path.exists():
        yield from path.read_text().splitlines()


def runs_of(path: Path, word: str, job_id: str = "") -> list[int]:
    """Pids of the runs that left `word` in the witness file, of one job or of all."""
    found = (line.split() for line in lines(path))
    return [int(pid) for said, job, pid in found if said == word and job_id in ("", job)]


def alive(pid: int) -> bool:
    """A zombie is dead."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def arguments_of(process: psutil.Process) -> list[str]:
    """Its command line; empty if it has ended, as one of several may while a test looks at them."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # a zombie is one, too
        return []
