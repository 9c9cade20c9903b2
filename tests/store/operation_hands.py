"""Operations on what a query matches, as their scripts see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from fusion.store.write.broker import Broker
from fusion.store.write.operation_broker import Move
from tests.kit.hands import Hand, new, put

WAITING = "scheduled deferred blocked queued"
ENDED = "failed canceled stopped"


def begin(conn: redis.Redis, operation: str, action: str, states: str = ENDED, **fields: Any) -> str:
    """Open an operation; its cut-off."""
    ok, cutoff = Broker(conn).open_operation(operation, {"action": action, "query": "", "states": states, **fields})
    assert ok
    return cutoff


def record(conn: redis.Redis, operation: str) -> dict[str, str]:
    """Its fields."""
    found: Any = conn.hgetall(f"rq:operation:{operation}")
    return {name.decode(): value.decode() for name, value in found.items()}


def figures(conn: redis.Redis, operation: str) -> tuple[int, int, int]:
    """Jobs done, skipped and refused."""
    row = record(conn, operation)
    return int(row.get("done", 0)), int(row.get("skipped", 0)), int(row.get("refused", 0))


def do(conn: redis.Redis, operation: str, action: str, *jobs: str, nonce: str = "n", **args: str) -> list[str]:
    """Have it do its thing to these jobs."""
    moves: Any = [Move(job) for job in jobs] if action == "reprioritise" else jobs
    return Broker(conn).do_operation(operation, action, moves, args, nonce)


def failed(conn: redis.Redis, *jobs: str, queue: str = "q") -> None:
    """Jobs that have failed just now."""
    put(Broker(conn), queue, *jobs)
    hand = Hand(Broker(conn), queue, name=f"host.{abs(hash(jobs))}")
    for claimed in hand.claim(len(jobs)):
        assert hand.tell(claimed, "failed", reason="r") == "ok"


def of_operations(conn: redis.Redis) -> dict[str, Callable[[], Any]]:
    """Calls that have to do with operations, for the tests of resends."""
    broker = Broker(conn)
    put(broker, "bulk", "o1", "o2", "o3", "o4")
    broker.enqueue("bulk", [new("o5", priority=2), new("o6", fair_key="f"), new("o7")], "n")
    broker.cancel("o7")
    for operation, action, states in (
        ("o-r", "requeue", ENDED),
        ("o-s", "stop", WAITING),
        ("o-d", "delete", WAITING),
        ("o-c", "stop", ""),
    ):
        begin(conn, operation, action, states)
    return {
        "open_operation": lambda: broker.open_operation("o-n", {"action": "requeue", "query": "state:failed"}),
        "lease_operation": lambda: broker.lease_operation("o-r", "w", 10)[0],
        "advance_operation": lambda: broker.advance_operation("o-r", 0, "step", "failed", 17, "id", skipped=2),
        "cancel_operation": lambda: broker.cancel_operation("o-c", "me"),
        "reprioritise": lambda: broker.reprioritise([Move("o1"), Move("o6"), Move("nobody"), Move("o7")], 2),
        "requeue_counted": lambda: said(broker.do_operation("o-r", "requeue", ["o7"], {}, "n")),
        "stop_counted": lambda: said(broker.do_operation("o-s", "stop", ["o2", "o3"], {}, "n")),
        "delete_counted": lambda: said(broker.do_operation("o-d", "delete", ["o4"], {}, "n")),
    }


def said(_: list[str]) -> None:
    """Of an operation the counts in its record say what was done; a resend says that it was done before."""
