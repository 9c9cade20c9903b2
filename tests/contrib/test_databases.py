"""Connections of jobs to a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.contrib.harness import Manages
from tests.inprocess.databases import Postgres, PostgresServer
from tests.kit.waiting import eventually, unhurried

LOOK = "tests.contrib.shop.orders.tasks.look"
FLAGS = {
    "pool": ("--horses", "1"),
    "thread": ("--executor", "thread", "--threads", "1"),
    "asyncio": ("--executor", "asyncio", "--concurrency", "1"),
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    found = PostgresServer()
    yield found
    found.close()


def test_jobs_keep_their_connection_and_none_fails_for_one_that_broke(
    manages: Manages, conn: redis.Redis, server: PostgresServer, tmp_path: Path
) -> None:
    database, seen = Postgres(server), tmp_path / "seen"

    def run(task: str, count: int) -> list[list[str]]:
        jobs = [Queue("mail").enqueue(task, str(seen)) for _ in range(count)]
        for job in jobs:
            eventually(lambda job=job: job.get_status() in ("finished", "failed"), unhurried(20))
        assert [job.get_status() for job in jobs] == ["finished"] * count, manages.output
        return [line.split() for line in seen.read_text().splitlines()][-count:]

    for executor, task in (("pool", LOOK), ("thread", LOOK), ("asyncio", LOOK), ("asyncio", f"{LOOK}_later")):
        worker = manages.start("fusion_worker", *FLAGS[executor], "--skip-checks", SHOP_POSTGRES=str(server.home)).ready()
        first = run(task, 3)
        # A thread looks after its connections once it has sent the outcome; a job that comes in that moment gets another thread.
        assert len({tuple(line) for line in first}) <= 1 + (executor == "thread"), f"{executor}: one process, one connection"
        (pid, backend) = first[0]
        database.change("SELECT pg_terminate_backend(?)", int(backend))  # what a restart of the server leaves
        later = run(task, 2)
        assert {one for one, _ in later} == {pid}, executor
        assert backend not in {one for _, one in later}, executor
        worker.stop()
