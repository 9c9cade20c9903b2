"""What the cases prepare: jobs of several weights, and those who hold them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterable, Iterator

import redis

from fusion.enqueue.sending import weight
from fusion.kernel import defaults
from fusion.store.layout.records import NewJob
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, new, outcome

Steps = Generator[None, None, None]
Kind = Callable[[str], NewJob]


def plain(job_id: str) -> NewJob:
    """A job without options."""
    return new(job_id)


def keyed(job_id: str) -> NewJob:
    """A job of one concurrency key with 1,000 slots, in a batch."""
    return new(job_id, ties="bk", batch="b", concurrency_key="k", max_concurrent="1000", ttl=3600)


def blocked(job_id: str) -> NewJob:
    """A job of one concurrency key with one slot, in a batch: it waits for its key."""
    return new(job_id, ties="bk", batch="b", concurrency_key="k", max_concurrent="1", ttl=3600)


def heavy(job_id: str) -> NewJob:
    """A job with all that makes one heavy: keys of all kinds, a batch, hooks, a time to live."""
    more = {"hooks": 1, "callback_url": "https://x.example/"}
    keys = {"concurrency_key": f"k{int(job_id[1:]) % 20}", "max_concurrent": "50", "unique_key": f"u-{job_id}"}
    return new(job_id, ties="bku", batch="b", **keys, **more, fair_key=f"f-{int(job_id[1:]) % 7}", ttl=3600)


def names(count: int) -> list[str]:
    """Names of jobs."""
    return [f"j{n}" for n in range(count)]


def open_batch(broker: Broker, batch: str = "b") -> None:
    """Open the batch that jobs of all kinds but the plain one join. It is to be read: what finishes is kept."""
    broker.open_batch(batch, secrets.token_hex(6), 3600, 86400, {})


def fill(broker: Broker, count: int, kind: Kind = plain, queue: str = "q") -> list[str]:
    """Enqueue jobs of a kind, some a call. Return their names."""
    if kind is not plain:
        open_batch(broker)
    for first in range(0, count, 20):
        broker.enqueue(queue, [kind(one) for one in names(count)[first : first + 20]], f"n{first}")
    return names(count)


def holding(conn: redis.Redis, count: int, kind: Kind = plain) -> Hand:
    """A worker that runs jobs of a kind."""
    broker = Broker(conn)
    fill(broker, count, kind)
    hand = Hand(broker, "q")
    while hand.claim(20):
        pass
    return hand


def ended(conn: redis.Redis, count: int, kind: Kind = plain, how: str = "failed") -> list[str]:
    """Jobs that have ended."""
    broker = Broker(conn)
    jobs = fill(broker, count, kind)
    hand = Hand(broker, "q")
    while held := hand.claim(20):
        hand.turn(*(outcome(one, how, reason="ValueError: no", fields={"error_class": "ValueError"}) for one in held))
    return jobs


def calls_of(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    """Cut jobs into calls, as `enqueue_many` does."""
    load, call = 0, list[NewJob]()
    for job in jobs:
        if load + weight(job) > defaults.ENQUEUE_CHUNK:
            yield call
            load, call = 0, []
        load += weight(job)
        call.append(job)
    yield call
