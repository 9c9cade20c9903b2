"""Bytes in Redis: of a job that waits, beside rq's with the same function and arguments; of one that has ended; of an event."""

from __future__ import annotations

import random
import string
from collections.abc import Iterable
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.store.write.broker import Broker
from tests.budgets import figures
from tests.jobs import basic
from tests.kit.hands import Hand, outcome
from tests.kit.waiting import eventually

pytestmark = pytest.mark.filterwarnings("ignore:Composite key:DeprecationWarning")

#: Enough that what is allocated once for all doesn't show.
JOBS = 2000
SAMPLE = 200
TASK = f"{basic.__name__}.{basic.noop.__name__}"


def texts(size: int, count: int) -> list[tuple[str, ...]]:
    """Arguments that hardly compress, as tokens, numbers and addresses do; equal ones in each run."""
    draw = random.Random(size)  # noqa: S311
    signs = string.ascii_letters + string.digits
    return [("".join(draw.choices(signs, k=size)),) if size else () for _ in range(count)]


def usage(conn: redis.Redis, keys: Iterable[Any]) -> int:
    pipe = conn.pipeline(transaction=False)
    for key in keys:
        pipe.memory_usage(key, samples=0)
    return sum(pipe.execute())


def used(conn: redis.Redis) -> int:
    eventually(lambda: conn.info("memory")["lazyfree_pending_objects"] == 0, why="what was deleted is freed")
    return int(conn.info("memory")["used_memory"])


def ours(conn: redis.Redis, arguments: list[tuple[str, ...]]) -> None:
    Queue("sms", conn).enqueue_many([Queue.prepare_data(TASK, args) for args in arguments])


def theirs(conn: redis.Redis, arguments: list[tuple[str, ...]]) -> None:
    queue = pytest.importorskip("rq").Queue("sms", connection=conn)
    queue.enqueue_many([queue.prepare_data(TASK, args) for args in arguments])


def per_job(conn: redis.Redis, produce: Any, size: int) -> tuple[float, float]:
    """Of hash and queue entry by MEMORY USAGE, and of all there is, events apart, by what the server has allocated."""
    conn.flushall()
    produce(conn, texts(size, 1))  # the script is known, the client's buffers are made
    conn.execute_command("FLUSHALL", "SYNC")  # a server that frees beside its work would free into what is measured
    before = used(conn)
    arguments = texts(size, JOBS)
    for first in range(0, JOBS, figures.CHUNK):
        produce(conn, arguments[first : first + figures.CHUNK])
    conn.delete("rq:events")
    allocated = used(conn) - before
    hashes = list(conn.scan_iter("rq:job:*", count=5000))
    assert len(hashes) == JOBS
    hashes = hashes[:: JOBS // SAMPLE]
    return usage(conn, hashes) / len(hashes) + usage(conn, ["rq:queue:sms"]) / JOBS, allocated / JOBS


@pytest.mark.long
@pytest.mark.parametrize("size", figures.OF_RQS)
def test_a_queued_job_beside_rqs(conn: redis.Redis, size: int) -> None:
    (named, allocated), (rqs_named, rqs_allocated) = per_job(conn, ours, size), per_job(conn, theirs, size)
    print(f"{size} bytes of arguments: {named:.0f} (rq {rqs_named:.0f}), allocated {allocated:.0f} (rq {rqs_allocated:.0f})")
    assert named <= rqs_named * figures.OF_RQS[size]
    assert allocated <= rqs_allocated * figures.OF_RQS[size]
    if not size:
        assert named <= figures.QUEUED


def test_a_finished_job_and_its_events(conn: redis.Redis) -> None:
    """Nothing but its hash, its entry among the finished, and three events."""
    hand = Hand(Broker(conn), "sms")
    ours(conn, texts(20, SAMPLE))
    while held := hand.claim(50):
        hand.turn(*(outcome(job, elapsed=0.012, fields={"result": "12"}) for job in held))
    keys = list(conn.scan_iter("rq:job:*", count=1000))
    assert conn.zcard("rq:finished:sms") == len(keys) == SAMPLE
    each = (usage(conn, keys) + usage(conn, ["rq:finished:sms"])) / SAMPLE
    event = usage(conn, ["rq:events"]) / conn.xlen("rq:events")
    print(f"a finished job {each:.0f} bytes, an event {event:.0f}")
    assert conn.xlen("rq:events") == 3 * SAMPLE
    assert each <= figures.FINISHED
    assert event <= figures.EVENT
