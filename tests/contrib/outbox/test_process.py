"""The process that forwards, while its database or its Redis comes and goes, and another of its kind beside it."""

from __future__ import annotations

import re
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import redis

from fusion.contrib.outbox.database import SENT
from tests.contrib.outbox.hands import Base, a_server, in_queue, postgres, sqlite
from tests.inprocess.databases import PostgresServer
from tests.kit.private_redis import PrivateRedis
from tests.kit.process import ProcessUnderTest
from tests.kit.waiting import eventually, unhurried

AWAY, BACK = "the database can't be used", "the database is back"


class Forwarding(ProcessUnderTest):
    """`outbox run` with a log. Another takes over after a second."""

    SETTINGS: ClassVar[dict[str, str]] = {"FUSION_LEASE": "1"}
    FAREWELL: ClassVar[int] = signal.SIGTERM

    def __init__(self, redis_url: str, log: Path, database: str, *words: str) -> None:
        super().__init__(redis_url, log, "run_worker.py", "outbox", "run", "--database", database, "--poll", "0.05", *words)


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Callable[[str, Base], Forwarding]]:
    """Forwarders that end with the test."""
    started: list[Forwarding] = []

    def start(redis_url: str, base: Base, database: str = "") -> Forwarding:
        started.append(Forwarding(redis_url, tmp_path / f"forwarder{len(started)}.log", database or base.url))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with a_server() as found:
        yield found


def comes(conn: redis.Redis, *ids: str) -> None:
    eventually(lambda: in_queue(conn) == [*ids], unhurried(30), why=f"{ids} in that order")


def _locked(base: Base) -> Callable[[], None]:
    """Held by a transaction for longer than the forwarder waits for it; what lets go."""
    writer = sqlite3.connect(base.url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
    writer.execute("BEGIN EXCLUSIVE")

    def let_go() -> None:
        writer.execute("COMMIT")
        writer.close()

    return let_go


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", ["SQLite", "PostgreSQL"])
def test_a_forwarder_continues_after_an_outage_of_database_or_redis(
    private_redis: PrivateRedis, tmp_path: Path, starts: Callable[..., Forwarding], request: pytest.FixtureRequest, kind: str
) -> None:
    server: PostgresServer | None = request.getfixturevalue("server") if kind == "PostgreSQL" else None
    base = postgres(server) if server else sqlite(tmp_path)
    base.add("q", "a")
    one = starts(private_redis.url, base, "" if server else f"{base.url}?timeout=0.2")
    one.says("it forwards now")
    comes(private_redis.conn, "a")
    base.engine.dispose()
    bring_back = _locked(base) if server is None else server.start
    if server is not None:
        server.stop()
    one.says(AWAY)
    time.sleep(3)  # several more tries
    bring_back()
    one.says(BACK)
    eventually(lambda: base.engine.connect().close() is None, why="the database answers the test")
    base.add("q", "b")
    comes(private_redis.conn, "a", "b")
    assert (one.count(AWAY), one.count(BACK), one.count("Traceback")) == (1, 1, 0), one.output
    # the connection that it had broke, or the pool found no other
    assert re.search(r"can't be used: OperationalError: .*(connection|is locked)", one.output), one.output
    private_redis.kill()
    base.add("q", "c", "d")
    one.says("Redis is away")
    time.sleep(1)
    private_redis.revive()
    comes(private_redis.conn, "a", "b", "c", "d")
    eventually(lambda: base.column(state=SENT) == ["a", "b", "c", "d"])
    one.says("Redis is back")
    assert (one.count("Redis is away"), one.count(AWAY), one.count("sent again")) == (1, 1, 0), one.output
    assert private_redis.conn.hget("rq:totals:q", "enqueued:1") == b"4"
    one.signal(signal.SIGTERM)
    assert one.wait() == 0, one.output


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_second_forwarder_takes_over_when_the_first_is_killed(
    conn: redis.Redis, redis_url: str, starts: Callable[..., Forwarding], server: PostgresServer
) -> None:
    base = postgres(server)
    one = starts(redis_url, base)
    one.says("it forwards now")
    other = starts(redis_url, base)
    other.says(f"another forwards: {base.ledger.counts()['forwarder']}")
    base.add("q", *(f"a{nth}" for nth in range(50)))
    comes(conn, *(f"a{nth}" for nth in range(50)))
    time.sleep(1.5)  # over the lease
    assert other.count("it forwards now") == 0
    one.kill()
    base.add("q", *(f"b{nth}" for nth in range(50)))
    other.says("it forwards now")
    comes(conn, *(f"a{nth}" for nth in range(50)), *(f"b{nth}" for nth in range(50)))
    assert conn.hget("rq:totals:q", "enqueued:1") == b"100"
    other.signal(signal.SIGTERM)
    assert other.wait() == 0
    assert "100 rows" not in other.output and "50 rows forwarded, 0 parked" in other.output
