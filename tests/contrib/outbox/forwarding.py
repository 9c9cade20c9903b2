"""Forwarders of an outbox as processes: by the command line, forked from one that has loaded everything."""

from __future__ import annotations

from tests.contrib.outbox.hands import Base
from tests.faults.crash.zygote import Ended, Zygote

PRELOAD = (
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.dialects.postgresql.psycopg",
    "fusion.contrib.outbox.process",
    "fusion.contrib.outbox.opened",
    "fusion.contrib.sqlalchemy.database",
)


def run(
    zygote: Zygote,
    base: Base,
    redis_url: str,
    failpoints: str = "",
    *,
    burst: bool = True,
    kill_after: float = 0.0,
    lease: float = 0.2,
) -> Ended:
    """`outbox run` until it ends, or is killed after this many seconds. It takes the place of one that is silent for its `lease`, and asks three
    times in that whether the other's is over."""
    words = ["outbox", "run", "--database", base.url, "--keep", "86400", "--poll", "0.02", *(["--burst"] if burst else [])]
    more = {"FUSION_REDIS_URL": redis_url, "FUSION_LEASE": str(lease)}
    return zygote.run(("run_worker.py", *words), failpoints, env=more, kill_after=kill_after)
