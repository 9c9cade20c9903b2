"""What the tests of resends do with the trash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, put
from tests.store.cron_hands import said_nothing


def of_trash(conn: redis.Redis) -> dict[str, Callable[[], Any]]:
    """Calls that have to do with deleted jobs: two are in the trash, one of which had failed."""
    broker = Broker(conn)
    put(broker, "thrown", "thrown_failed", "thrown")
    hand = Hand(broker, "thrown", name="thrown.1")
    hand.tell(hand.take(), "failed", reason="r")
    broker.delete_to_trash(["thrown_failed", "thrown"])
    return {
        "delete_kept": lambda: said_nothing(broker.delete_to_trash(["j6", "j2"])),
        "empty_kept": lambda: said_nothing(broker.empty_to_trash("q", 50)),
        "restore": lambda: broker.restore(["thrown", "thrown_failed", "nobody"], "nonce"),
        "empty_trash": lambda: said_nothing(broker.empty_trash()),
    }
