"""Ids that Fusion makes are nobody else's: a tick, a repeated request, a callback goes by its id alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fusion import Queue
from fusion.exceptions import InvalidName
from fusion.store.layout.names import check_new_job_id
from tests.domain.test_async_queue import enqueued

NOOP = "tests.jobs.basic.noop"
OWN = ["cron-e-20300101T000000Z", "cron-", "idem-0123", "cb-1", "cb-1795341570123456-7", "corrupt-da39a3ee"]


ROADS: dict[str, Callable[[redis.Redis, str], object]] = {
    "enqueue": lambda conn, job_id: Queue("q", conn).enqueue(NOOP, job_id=job_id),
    "enqueue_call": lambda conn, job_id: Queue("q", conn).enqueue_call(NOOP, job_id=job_id),
    "enqueue_in": lambda conn, job_id: Queue("q", conn).enqueue_in(5, NOOP, job_id=job_id),
    "enqueue_many": lambda conn, job_id: Queue("q", conn).enqueue_many([Queue.prepare_data(NOOP, job_id=job_id)]),
    "async": lambda conn, job_id: enqueued(lambda queue: queue.enqueue(NOOP, job_id=job_id)),
}


@pytest.mark.parametrize("job_id", OWN)
@pytest.mark.parametrize("road", ROADS)
def test_no_road_takes_one(conn: redis.Redis, road: str, job_id: str) -> None:
    with pytest.raises(InvalidName, match=r"ids that begin with '(cron|idem|cb|corrupt)-' are those of .*; choose another"):
        ROADS[road](conn, job_id)
    assert conn.dbsize() == 0


@pytest.mark.parametrize("job_id", ["cronjob-1", "my-cron-1", "idempotent", "Cron-1", "c"])
def test_others_are_free(job_id: str) -> None:
    assert check_new_job_id(job_id) == job_id
