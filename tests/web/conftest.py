from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.store.redis_server.instance import EmbeddedRedis
from fusion.store.write.broker import Broker
from tests.cli.conftest import invoke as invoke
from tests.cli.conftest import patient_searches as patient_searches
from tests.kit.hands import Hand
from tests.web.harness import ServerProcess, Tokens

Start = Callable[..., ServerProcess]
Fail = Callable[..., str]


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens.write(tmp_path_factory.mktemp("tokens") / "tokens.txt")


@pytest.fixture(scope="session")
def _service(redis_server: EmbeddedRedis, tokens: Tokens, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(redis_server.url, tmp_path_factory.mktemp("server") / "log", "--tokens", str(tokens.path))
    yield server
    server.stop()


@pytest.fixture
def service(conn: redis.Redis, _service: ServerProcess) -> ServerProcess:
    """One server process for all tests, on the test's empty Redis. It keeps nothing between requests."""
    assert _service.process.poll() is None, _service.output
    return _service


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(redis_url, "--tokens", ...)`: a server process of the test's own."""
    started: list[ServerProcess] = []

    def begin(redis_url: str, *args: str, **more: Any) -> ServerProcess:
        started.append(ServerProcess(redis_url, tmp_path / f"server{len(started)}.log", *args, **more))
        return started[-1]

    yield begin
    for server in started:
        server.stop()


@pytest.fixture
def fail(conn: redis.Redis) -> Fail:
    """`fail("id", "tests.jobs.basic.boom", args=...)`: a job that has failed."""
    count = itertools.count()

    def make(job_id: str, func: str = "tests.jobs.basic.boom", *, reason: str = "ValueError: boom", **options: object) -> str:
        Queue("sms", conn).enqueue(func, job_id=job_id, **options)
        hand = Hand(Broker(conn), "sms", name=f"failing.{next(count)}")
        error = {"error_class": "builtins.ValueError", "error_frame": "tests.jobs.basic:boom:49", "exc_info": "Traceback"}
        assert hand.tell(hand.take(), "failed", reason=reason, fields=error) == "ok"
        hand.broker.deregister(hand.name, hand.incarnation)
        return job_id

    return make


_sources = (f"127.{a}.{b}.{c}" for a in range(1, 255) for b in range(1, 255) for c in range(1, 255))


@pytest.fixture
def source() -> str:
    """A loopback address that no other test has spoken from."""
    return next(_sources)
