"""The shops of docs/examples under load, with a worker that is killed."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.contrib.web.test_shops import SERVERS, start, workers
from tests.inprocess.databases import Postgres, PostgresServer
from tests.kit.waiting import eventually, unhurried
from tests.kit.workers import Workers

__all__ = ["workers"]
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        Postgres(server)  # it answers
        yield server
    finally:
        server.stop()


@pytest.mark.long
@pytest.mark.parametrize("framework", SERVERS)
def test_under_load_with_a_killed_worker_no_order_is_lost_and_no_connection_shared(
    framework: str, redis_url: str, conn: redis.Redis, tmp_path: Path, workers: Workers, postgres: PostgresServer
) -> None:
    database = f"postgresql+psycopg://fusion@/postgres?host={postgres.home}"
    with start(framework, redis_url, tmp_path, database) as shop:
        connect = partial(Postgres(postgres).connect, autocommit=True)
        with closing(connect()) as connection:  # the server notes by which of its connections a row came; process ids come again
            connection.execute(
                "CREATE FUNCTION served_by() RETURNS text LANGUAGE sql AS "
                "'SELECT pid || '' '' || backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()'"
            )
            for table in ("orders", "confirmations"):
                connection.execute(f"ALTER TABLE {table} ADD COLUMN backend text DEFAULT served_by()")
        first, second = (workers.start("orders", "--slots", "2", ready=False, env=shop.env) for _ in range(2))
        for worker in (first, second):
            worker.wait_ready(unhurried(60))
        with ThreadPoolExecutor(4) as clients:
            taken = clients.map(shop.order, range(200))
            numbers = {next(taken)[0] for _ in range(60)}
            os.kill(first.pid, signal.SIGKILL)
            numbers |= {number for number, _ in taken}
        assert len(numbers) == 200
        eventually(lambda: shop.confirmed() == numbers, unhurried(90), why="each order is confirmed")
        with closing(connect()) as connection:
            served: dict[str, set[int]] = defaultdict(set)
            for table in ("orders", "confirmations"):
                for process, backend in connection.execute(f"SELECT process, backend FROM {table}"):
                    served[backend].add(process)
        shared: dict[str, Any] = {backend: processes for backend, processes in served.items() if len(processes) > 1}
        assert not shared
        assert len(set().union(*served.values())) > 3  # two of the site, and those of jobs
