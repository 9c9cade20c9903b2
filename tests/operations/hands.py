"""Operations begun and carried on, for tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import redis

from fusion.operations.carrier import Carrier
from fusion.operations.plan import OperationPlan
from fusion.settings import Settings
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, new, outcome

ROOT = Path(__file__).resolve().parents[2]


def failed(conn: redis.Redis, count: int, queue: str = "q", prefix: str = "f") -> list[str]:
    """This many jobs that have failed."""
    broker, ids = Broker(conn), [f"{prefix}{n}" for n in range(count)]
    hand = Hand(broker, queue, name=f"host.{prefix}")
    for start in range(0, count, 100):
        part = ids[start : start + 100]
        broker.enqueue(queue, [new(job, priority=250 if prefix == "late" else 200) for job in part], f"n{prefix}{start}")
        hand.turn(*(outcome(claimed, "failed", reason="r") for claimed in hand.claim(len(part))))
    return ids


def begin(conn: redis.Redis, action: str, query: str, *, keyed: bool = False, **given: Any) -> str:
    """Write an operation down."""
    plan = OperationPlan.of(action, query, **given)
    name = f"op{conn.zcard('rq:operations')}"
    assert Broker(conn).open_operation(name, plan.record("me", 0, keyed))[0]
    return name


def carrier(conn: redis.Redis, name: str = "here", page: int = 100, lease: float = 0.05, **settings: Any) -> Carrier:
    """Somebody who carries on; the lease is over soon."""
    return Carrier(conn, Settings(**settings), name, page=page, lease=lease)


def carry_on(conn: redis.Redis, operation: str, page: int = 100, **settings: Any) -> str:
    """To the end."""
    one = carrier(conn, page=page, **settings)
    for _ in range(10_000):
        status, _ = one.carry(operation, 0.5)
        if status not in ("running", "busy"):
            return status
    raise AssertionError(status)


_PROGRAM = """
import sys
from fusion.operations.carrier import Carrier
from fusion.settings import Settings
from fusion.store.client.connections import connect
settings = Settings(redis_url=sys.argv[1])
carrier = Carrier(connect(settings), settings, sys.argv[3], page=100, lease=0.05)
while carrier.carry(sys.argv[2], 60)[0] in ("running", "busy"):
    pass
"""


def start(url: str, operation: str, name: str = "child", failpoints: str = "") -> subprocess.Popen[bytes]:
    """A process that carries on to the end, unless it is struck."""
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, url, operation, name],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "FUSION_FAILPOINTS": failpoints},
    )
