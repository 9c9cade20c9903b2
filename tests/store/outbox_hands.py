"""What the tests of outboxes share."""

from __future__ import annotations

from collections.abc import Callable

import redis

from fusion.store.layout.records import Marked, NewJob, OutboxBatch
from fusion.store.write.broker import Broker
from tests.kit.hands import new


def _numbered(marked: Marked) -> tuple[int, str]:
    """Of an answer what a resend has to repeat; that it was accepted before, it may say."""
    assert marked.kind in ("ok", "done")
    return marked.number, marked.stamp


def of_outbox(conn: redis.Redis) -> dict[str, Callable[[], object]]:
    """Calls that may be sent twice."""

    def call(*jobs: NewJob) -> Callable[[], object]:
        return lambda: _numbered(Broker(conn).enqueue_rows("q", jobs, OutboxBatch("0a", 1, 0, "f.1")))

    return {"enqueue_rows": call(new("row1"), new("row2")), "enqueue_no_rows": call()}
