"""Each script at its largest call."""

from __future__ import annotations

from collections.abc import Generator

import redis

from benchmarks.instructions.case import case
from fusion.store.layout.records import NewJob
from fusion.store.write.broker import Broker
from tests.kit.hands import LEASE, Hand, new

Steps = Generator[None, None, None]
CHUNK = 500


def plain(job_id: str) -> NewJob:
    """A job without options."""
    return new(job_id)


def heavy(job_id: str) -> NewJob:
    """A job with all that makes one heavy: a concurrency key, a batch, a place by its fair key, a unique key, a time to live."""
    return new(
        job_id,
        ties="bku",
        batch="b",
        concurrency_key="k",
        max_concurrent="1",
        unique_key=f"u-{job_id}",
        fair_key=f"f-{job_id}",
        ttl=600,
    )


def fill(broker: Broker, count: int, kind: object = plain, queue: str = "q") -> list[str]:
    """Enqueue jobs of a kind, some a call. Returns their ids."""
    ids = [f"j{n}" for n in range(count)]
    for first in range(0, count, 50):
        broker.enqueue(queue, [kind(one) for one in ids[first : first + 50]], f"n{first}")  # type: ignore[operator]
    return ids


def dead(conn: redis.Redis, count: int) -> tuple[Broker, Hand]:
    """A worker that holds jobs."""
    broker = Broker(conn)
    hand = Hand(broker, "q")
    fill(broker, count)
    while hand.claim(50):
        pass
    return broker, hand


@case("prune")
def prune_a_worker_with_1000_jobs(conn: redis.Redis) -> Steps:
    broker, hand = dead(conn, 1000)
    yield
    broker.prune(LEASE, hand.name)


@case("deregister")
def deregister_a_worker_with_1000_jobs(conn: redis.Redis) -> Steps:
    broker, hand = dead(conn, 1000)
    yield
    broker.deregister(hand.name, hand.incarnation)
