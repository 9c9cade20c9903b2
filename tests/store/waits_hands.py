"""Calls about blocked jobs, for the test that every call may be sent twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from fusion.store.layout.records import Claimed, RunLog
from tests.kit.hands import LEASE, Hand, outcome, put
from tests.store.outbox_hands import of_outbox


def of_waits(conn: redis.Redis, hand: Hand, running: Claimed, token: int) -> dict[str, Callable[[], Any]]:
    conn.zadd("rq:waits:probation:z", {"suspect": 1})
    put(hand.broker, "calls", "c1", "c2", "c3", func="f", gather="10 0", ties="m")
    caller = Hand(hand.broker, "calls", name="caller.1")
    first = caller.take()
    return {
        "turn_struck": lambda: hand.turn(outcome(running, "struck"), slots=[0], token=token),
        "turn_held": lambda: hand.turn(outcome(running, "held", fields={"task": "shop.f"}), slots=[0], token=token),
        "hold_probation": lambda: hand.broker.hold_probation("host", hand.incarnation, 20, ["probation:z"]),
        "sample": lambda: hand.broker.sample(60),
        "write_logs": lambda: hand.broker.write_logs([RunLog(running.id, running.execution_id, lines="1 a")]),
        "follow": lambda: caller.broker.follow(caller.name, caller.incarnation, 1, LEASE, first, 5),
        **of_outbox(conn),
    }
