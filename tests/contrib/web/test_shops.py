"""The shops of docs/examples as they stand: served by real servers, with a worker beside them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
import redis

from tests.kit.process import ROOT, ProcessUnderTest
from tests.kit.servers import free_port
from tests.kit.waiting import eventually, unhurried
from tests.kit.workers import Workers

EXAMPLES = ROOT / "docs" / "examples"
#: How each is served, with two processes.
SERVERS = {
    "flask": (
        "gunicorn",
        "--timeout",
        "300",  # a loaded machine: it kills what takes longer to start
        "--preload",
        "--workers",
        "2",
        "--threads",
        "4",
        "--log-level",
        "warning",
        "--bind",
        "127.0.0.1:{port}",
        "flask_shop:app",
    ),
    "fastapi": ("uvicorn", "--workers", "2", "--log-level", "warning", "--port", "{port}", "fastapi_shop:app"),
}
pytestmark = pytest.mark.timeout(1800)


class Shop:
    """One of the examples in a database of its own."""

    def __init__(self, framework: str, redis_url: str, home: Path, database: str) -> None:
        self.name = f"{framework}_shop"
        self.env = {"PYTHONPATH": str(EXAMPLES), "SHOP_DATABASE": database, "FUSION_TASKS": self.name, "FUSION_LEASE": "3"}
        made = ProcessUnderTest(redis_url, home / "made.log", str(EXAMPLES / f"{self.name}.py"), env=self.env)
        assert made.wait(unhurried(60)) == 0, made.output
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [part.format(port=port) for part in SERVERS[framework]]
        self.server = ProcessUnderTest(redis_url, home / "server.log", "-m", *command, env=self.env)
        self.server.FAREWELL = signal.SIGTERM  # type: ignore[misc]

    def wait_ready(self) -> None:
        self.server.until(self._answers, unhurried(60), "it answers")

    def _answers(self) -> bool:
        try:
            return self.confirmed() == set()
        except URLError:
            return False

    def order(self, number: int) -> tuple[int, str | None]:
        """Return the order's number, and the id of the request."""
        sent = Request(f"{self.url}/orders/book", method="POST", headers={"X-Request-ID": f"request-{number}"})
        with urlopen(sent, timeout=60) as answer:
            return json.load(answer)["order"], answer.headers["X-Request-ID"]

    def confirmed(self) -> set[int]:
        with urlopen(f"{self.url}/confirmed", timeout=60) as answer:
            return set(json.load(answer))


@contextmanager
def start(framework: str, redis_url: str, home: Path, database: str) -> Iterator[Shop]:
    shop = Shop(framework, redis_url, home, database)
    try:
        shop.wait_ready()
        yield shop
    finally:
        shop.server.stop()


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(redis_url, tmp_path)
    try:
        yield found
    finally:
        found.stop()


def scheme(framework: str, asynchronous: str, plain: str) -> str:
    return asynchronous if framework == "fastapi" else plain


@pytest.mark.long
@pytest.mark.gate
@pytest.mark.parametrize("framework", SERVERS)
def test_an_order_is_confirmed_and_its_log_has_the_id_of_the_request(
    framework: str, redis_url: str, conn: redis.Redis, tmp_path: Path, workers: Workers
) -> None:
    database = f"{scheme(framework, 'sqlite+aiosqlite', 'sqlite')}:///{tmp_path}/shop.db"
    with start(framework, redis_url, tmp_path, database) as shop:
        worker = workers.start("orders", ready=False, env=shop.env).wait_ready(unhurried(60))
        number, request_id = shop.order(1)
        assert request_id == "request-1"
        eventually(lambda: shop.confirmed() == {number}, unhurried(30), why="it is confirmed")
        worker.says(f"INFO [request-1] order {number} is confirmed", timeout=unhurried(30))
