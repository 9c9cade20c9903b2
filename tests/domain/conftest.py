from __future__ import annotations

from typing import Any

import pytest
import redis

from fusion import Job, Queue
from fusion.enqueue.sending import QueueSteps
from fusion.store.access import broker_of
from tests.jobs import basic
from tests.kit.hands import Hand


class Bench:
    """Makes jobs in any state, with a worker's hands but without a worker."""

    STATES = ("queued", "started", "finished", "failed", "scheduled", "canceled")

    def __init__(self, conn: redis.Redis, queue: str = "sms") -> None:
        self.conn, self.queue = conn, Queue(queue)
        self.hand = Hand(broker_of(conn), queue)

    def job(self, state: str, **options: object) -> Job:
        """A new job of this queue in this state; alone in the queue while it is made."""
        job = self.queue.enqueue(basic.noop, **options)
        if state == "canceled":
            job.cancel()
        elif state != "queued":
            self.bring(job, state)
        assert Job.fetch(job.id).get_status() == state
        return job

    def bring(self, job: Job, state: str) -> None:
        (claimed,) = self.hand.claim()
        assert claimed.id == job.id
        if state == "finished":
            self.hand.tell(claimed, fields={"result": b'"done"'})
        elif state == "failed":
            self.hand.tell(
                claimed, "failed", reason="ValueError: boom", fields={"exc_info": "Traceback", "reason": "ValueError: boom"}
            )
        elif state == "scheduled":
            self.hand.tell(claimed, "retry", delay=3600.0, reason="ConnectionError", fields={"retryCount": 8})


@pytest.fixture
def bench(conn: redis.Redis) -> Bench:
    return Bench(conn)


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions of the calls that are made the general way, in their order."""
    found: list[str] = []
    ordinary = QueueSteps._one

    def one(self: QueueSteps, data: Any, terms: Any) -> Any:
        found.append(data.func_name)
        return ordinary(self, data, terms)

    monkeypatch.setattr(QueueSteps, "_one", one)
    return found
