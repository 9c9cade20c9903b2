"""What pages cost Redis: however many look, and however much there is."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from fusion.dashboard.app import DashboardApp
from fusion.store.write.broker import Broker
from fusion.web.auth import ANONYMOUS
from tests.dashboard.browser import Browser
from tests.kit import guarded
from tests.kit.hands import Hand, put
from tests.kit.private_redis import PrivateRedis
from tests.operations.hands import failed

PAGES = ("/", "/queues", "/queues/q1", "/failures", "/operations", "/workers", "/relay", "/redis")
#: Looks a second, and for how many seconds.
_LOOKS, _FOR = 20, 10
#: A command is slow that is so in each: on a busy machine any may wait for a processor.
_ROUNDS = 3


def spent(conn: redis.Redis) -> int:
    """Microseconds that all commands have taken; what tells of it apart."""
    stats: Any = conn.info("commandstats")
    return sum(row["usec"] for name, row in stats.items() if name not in ("cmdstat_info", "cmdstat_config|get"))


def furnish(conn: redis.Redis, jobs: int, failed: int, queues: int = 20) -> None:
    """Queues with jobs of three priorities and a history of two hours, jobs that failed, and workers that run some."""
    broker = Broker(conn)
    now = int(conn.time()[0])
    for nth in range(queues):
        put(broker, f"q{nth}", f"first-{nth}")
        Hand(broker, f"q{nth}", name=f"web{nth}.1").claim(1)
        put(broker, f"q{nth}", f"next-{nth}")
        conn.zadd("rq:history:queues", {f"q{nth}": now})
        for minute in range(now // 60 - 120, now // 60 + 1):
            place = minute % 60
            figures: dict[Any, Any] = {
                f"{place}:{priority}:{what}": 7
                for priority in range(3)
                for what in ("completed", "failed", "w1", "w4", "w8", "r2", "r6")
            }
            conn.hset(f"rq:history:minute:queue:q{nth}:{minute // 60}", mapping=figures)
            conn.hset(f"rq:history:minute:waiting:q{nth}:{minute // 60}", str(place), "9 9 5 5 1 1")
    for start in range(0, jobs, 10_000):
        conn.zadd("rq:queue:q1", {f"job-{n}": n % 3 + n / 2**41 for n in range(start, min(jobs, start + 10_000))})
    for start in range(0, failed, 10_000):
        conn.zadd("rq:queue:failed", {f"failed-{n}": 2**41 + n for n in range(start, min(failed, start + 10_000))})


def cost(conn: redis.Redis, path: str) -> float:
    """Microseconds of Redis a page, if it is opened so often."""
    app, clock = DashboardApp(conn, lambda request: ANONYMOUS), 0.0
    app._calls._clock = lambda: clock
    browser = Browser(app)
    before = spent(conn)
    for _ in range(_LOOKS * _FOR):
        assert browser.get(path).status == 200
        clock += 1 / _LOOKS
    return (spent(conn) - before) / (_LOOKS * _FOR)


@pytest.mark.long
def test_twenty_looks_a_second_need_less_than_a_millisecond_each(private_redis: PrivateRedis) -> None:
    furnish(private_redis.conn, 2_000, 200, queues=5)
    assert {path: used for path in PAGES if (used := cost(private_redis.conn, path)) > 1000} == {}


@pytest.mark.long
def test_jobs_are_found_for_that_as_well(private_redis: PrivateRedis) -> None:
    failed(private_redis.conn, 500)
    (group,) = private_redis.conn.zrange("rq:failures", 0, -1)
    pages = ("/jobs", "/jobs?q=state:failed", "/jobs?q=queue:q+error:r", "/jobs/f7", f"/failures/{group.decode()}")
    assert {path: used for path in pages if (used := cost(private_redis.conn, path)) > 1000} == {}


@pytest.mark.long
@pytest.mark.timeout(240)
def test_pages_cost_the_same_with_a_million_jobs(private_redis: PrivateRedis) -> None:
    conn = private_redis.conn
    furnish(conn, 1_000_000, 200_000)
    admin = guarded.admin_client(private_redis.url)
    try:
        admin.config_set("slowlog-log-slower-than", 5000)
        slow: set[bytes] | None = None
        for _ in range(_ROUNDS):
            admin.slowlog_reset()
            found = {path: cost(conn, path) for path in PAGES}
            now: Any = admin.slowlog_get(1000)
            slow = {row["command"][:60] for row in now} & (slow if slow is not None else {row["command"][:60] for row in now})
            if not slow:
                break
    finally:
        admin.close()
    assert {path: used for path, used in found.items() if used > 1000} == {}, found
    assert slow == set()
