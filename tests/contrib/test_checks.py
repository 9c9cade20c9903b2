"""`manage.py check`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion.store.redis_server.instance import EmbeddedRedis


def found(deploy: bool = False, **said: Any) -> dict[str, str]:
    from django.core.checks import run_checks
    from django.test import override_settings

    with override_settings(FUSION=said):
        return {one.id: str(one) for one in run_checks(tags=["fusion"], include_deployment_checks=deploy)}


def test_a_project_as_it_should_be_has_no_findings(redis_url: str, shop: Path) -> None:
    assert found(deploy=True, LEASE=12) == {}


@pytest.mark.parametrize(
    ("said", "check", "told"),
    [
        ({"LEESE": 5}, "fusion.E001", "did you mean 'LEASE'?"),
        ({"LEASE": "soon"}, "fusion.E001", "setting lease = 'soon'"),
        ({"TASKS": ["tests.contrib.nowhere"]}, "fusion.E002", "No module named 'tests.contrib.nowhere'"),
    ],
)
def test_django_checks_name_the_fault_and_its_fix(
    redis_url: str, shop: Path, said: dict[str, Any], check: str, told: str
) -> None:
    errors = found(**said)
    assert [*errors] == [check]
    assert told in errors[check]


def test_no_redis_is_a_warning(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSION_REDIS_URL")
    assert [*found()] == ["fusion.W001"]
    assert found(REDIS_URL="redis://127.0.0.1:1") == {}
    assert "can't be reached" in found(deploy=True, REDIS_URL="redis://127.0.0.1:1")["fusion.E003"]


def test_the_built_in_redis_counts_as_named(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSION_REDIS_URL")
    with tempfile.TemporaryDirectory(prefix="fus", dir="/tmp") as home:  # a short name: it holds a socket
        monkeypatch.setenv("FUSION_HOME", home)
        server = EmbeddedRedis(home, persistent=False)
        server.start()
        try:
            assert found() == {}
        finally:
            server.stop()
        assert [*found()] == ["fusion.W001"]


def test_a_redis_that_evicts_is_an_error_of_a_deploy(conn: redis.Redis, sweeper: redis.Redis, shop: Path) -> None:
    sweeper.config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert "maxmemory-policy" in found(deploy=True)["fusion.E003"]
        assert found() == {}
    finally:
        sweeper.config_set("maxmemory-policy", "noeviction")
