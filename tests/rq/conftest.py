"""Programs for RQ on a real Redis: the worker runs in the test's process, as `Worker(...).work(burst=True)` does there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fusion.rq import Queue, Worker
from fusion.settings import use_settings

TASKS = "tests.rq.tasks_of_rq"


@pytest.fixture
def client(conn: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> redis.Redis:
    """A client that the program made itself: no setting names this Redis."""
    monkeypatch.setenv("FUSION_TASKS", TASKS)
    use_settings(None)
    return redis.Redis.from_url(redis_url)


@pytest.fixture
def queue(client: redis.Redis) -> Queue:
    return Queue("work", connection=client)


@pytest.fixture
def burst(client: redis.Redis) -> Callable[..., bool]:
    """Run what waits in `work`, or in these queues."""

    def run(*queues: str) -> bool:
        return Worker(queues or ["work"], connection=client).work(burst=True)

    return run
