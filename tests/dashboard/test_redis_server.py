"""The page of Redis itself."""

from __future__ import annotations

from collections.abc import Callable

import redis

from tests.dashboard.browser import Browser
from tests.kit import guarded
from tests.kit.private_redis import PrivateRedis


def test_it_shows_memory_persistence_and_speed(client: Browser, conn: redis.Redis) -> None:
    page = client.get("/redis")
    assert page.status == 200
    for text in ("noeviction", "Append-only file", "Commands a second", "Answers in", "evalsha", "Clients"):
        assert text in page.text, text


def test_a_policy_that_loses_jobs_is_a_warning_with_its_command(private_redis: PrivateRedis) -> None:
    from fusion.dashboard.app import DashboardApp
    from fusion.web.auth import ANONYMOUS

    admin = guarded.admin_client(private_redis.url)
    try:
        admin.config_set("maxmemory-policy", "allkeys-lru")
        admin.config_set("maxmemory", 10**9)
        admin.config_set("slowlog-log-slower-than", 0)
        admin.set("rq:secret", "S3CR3T")
        page = Browser(DashboardApp(private_redis.conn, lambda request: ANONYMOUS)).get("/redis")
    finally:
        admin.close()
    assert "allkeys-lru loses jobs" in page.text and "CONFIG SET maxmemory-policy noeviction" in page.text
    assert "of 1.0 GB" in page.text and "Commands that took long" in page.text and "S3CR3T" not in page.html
    assert 'data-copy="redis-cli -s ' in page.html


def test_a_token_for_some_queues_does_not_see_the_redis_page(restricted: Callable[..., Browser]) -> None:
    somebody = restricted("sms")
    assert somebody.get("/redis").status == 403
    assert 'href="/redis"' not in somebody.get("/queues").html
