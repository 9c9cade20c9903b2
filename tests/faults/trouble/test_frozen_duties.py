"""A worker is frozen at some point of its round. What it was about to do for the fleet another does, in time."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
import redis

from fusion import Job, Queue
from tests.jobs import basic
from tests.kit.length import long_case
from tests.kit.promises import claim
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import status_of
from tests.kit.workers import WorkerProcess, Workers, wait_may_recover
from tests.worker.test_expiry import lateness, within

LEASE, REAP = 8.0, 1.0
QUICK = {"FUSION_LEASE": str(LEASE), "FUSION_REAP_INTERVAL": str(REAP), "FUSION_MAINTENANCE_INTERVAL": "1"}
POINTS = [
    "promote.after",
    "expire.before",
    *map(
        long_case,
        (
            *("promote.before", "expire.after", "reap.before", "reap.after"),
            *("prune.before", "prune.after", "clean.before", "clean.after", "turn.sent"),
        ),
    ),
]


@contextmanager
def frozen_at(workers: Workers, conn: redis.Redis, point: str, others: int) -> Iterator[list[WorkerProcess]]:
    """This many workers that live, beside one that was frozen there. Yields the living.

    They stand still until then: so the other one does all duties, and comes to that point; and what they heard meanwhile is old.
    """
    living = [workers.start("sms", env=QUICK) for _ in range(others)]
    for worker in living:
        worker.signal(signal.SIGSTOP)
    struck = workers.start("sms", env={**QUICK, "FUSION_FAILPOINTS": f"{point}=stop@2"}, ready=False)
    process = psutil.Process(struck.pid)

    def is_frozen() -> bool:
        if process.status() == psutil.STATUS_STOPPED:
            return True
        Queue("nobody").enqueue(basic.noop, ttl=0.3)  # something to expire
        if point == "turn.sent":
            Queue("sms").enqueue(basic.noop)
        return False

    eventually(is_frozen, 60, 0.2, why=f"it comes to {point}")
    for worker in living:
        worker.signal(signal.SIGCONT)
    try:
        yield living
        assert process.status() == psutil.STATUS_STOPPED
    finally:
        struck.signal(signal.SIGKILL)


@claim("P14")
@pytest.mark.timeout(150)  # on a busy machine nine workers take half a minute to start
@pytest.mark.parametrize("others", [1, long_case(7)])
@pytest.mark.parametrize("point", POINTS)
def test_what_expires_is_told_in_time(workers: Workers, conn: redis.Redis, point: str, others: int) -> None:
    with frozen_at(workers, conn, point, others):
        for ttl in (0.3, 0.5, 1.2, 5.0):
            job = Queue("nobody").enqueue(basic.noop, ttl=ttl)
            assert 0 <= lateness(conn, job.id) < within()
    assert conn.zcount("rq:expiring", "-inf", _now_ms(conn) - 2000 * within()) == 0


@claim("P7")
@pytest.mark.long
@pytest.mark.timeout(150)
@pytest.mark.parametrize("point", ["reap.before", "reap.after", "prune.before", "prune.after"])
def test_jobs_of_the_dead_are_claimable_in_time(workers: Workers, conn: redis.Redis, point: str) -> None:
    doomed = workers.start("long", env=QUICK)
    job = Queue("long").enqueue(basic.sleep, 60)
    eventually(lambda: status_of(conn, job.id) == "started")
    wait_may_recover(conn)
    with frozen_at(workers, conn, point, 1):
        doomed.signal(signal.SIGKILL)
        died = time.monotonic()
        eventually(lambda: status_of(conn, job.id) == "queued", 30, why="it is claimable again")
        assert time.monotonic() - died < LEASE + REAP + unhurried(1.0)


@pytest.mark.parametrize("count", [2, long_case(8)])
def test_a_job_whose_token_a_frozen_worker_has_read_is_taken_by_the_next_look(
    workers: Workers, conn: redis.Redis, count: int
) -> None:
    """It read the token and acted on nothing. No other process learns of the job; `idle_wait` bounds that."""
    crew = [workers.start("sms", env={**QUICK, "FUSION_FAILPOINTS": "doorbell.token=stop"})]
    process = psutil.Process(crew[0].pid)
    eventually(lambda: any(client["cmd"] == "blpop" for client in conn.client_list()), why="it waits")
    crew += [workers.start("sms", env=QUICK) for _ in range(count - 1)]
    swallowed: Job | None = None
    since = 0.0

    def is_frozen() -> bool:
        nonlocal swallowed, since
        swallowed, since = job, _ = Queue("sms").enqueue(basic.noop), time.monotonic()
        eventually(lambda: status_of(conn, job.id) == "finished" or process.status() == psutil.STATUS_STOPPED)
        return process.status() == psutil.STATUS_STOPPED

    eventually(is_frozen, 60, 0.1, why="it reads a token")
    assert swallowed is not None
    job_id = swallowed.id
    eventually(lambda: status_of(conn, job_id) == "finished", 30, 0.02)
    assert time.monotonic() - since < 3.0 + unhurried(2.0)
    job = Queue("nobody").enqueue(basic.noop, ttl=0.3)
    assert 0 <= lateness(conn, job.id) < within()
    crew[0].signal(signal.SIGKILL)


def _now_ms(conn: redis.Redis) -> int:
    seconds, micros = conn.time()
    return int(seconds) * 1000 + int(micros) // 1000


@pytest.mark.parametrize("others", [1, long_case(7)])
def test_what_is_due_before_the_next_look_is_moved_in_time(workers: Workers, conn: redis.Redis, others: int) -> None:
    """No scheduler is there, and the worker that would look next is frozen: all were told."""
    with frozen_at(workers, conn, "promote.after", others):
        late = []
        for _ in range(9):
            job = Queue("nobody").enqueue_in(0.2, basic.noop)
            due = float(conn.zscore("rq:scheduler:scheduled_jobs", job.id))
            eventually(lambda job=job: status_of(conn, job.id) == "queued")  # type: ignore[misc]
            (moved,) = [int(entry.split(b"-")[0]) for entry, event in conn.xrange("rq:events") if _queued(event, job.id)]
            late.append(moved / 1000 - due)
    print([round(one, 3) for one in late])
    assert min(late) >= -0.001
    assert sorted(late)[len(late) // 2] < 0.05 + unhurried(0.05), "by its own look it would be 0.4 s late"


def _queued(event: dict[bytes, bytes], job_id: str) -> bool:
    return (event[b"event"], event[b"job_id"], event.get(b"reason")) == (b"queued", job_id.encode(), b"due")
