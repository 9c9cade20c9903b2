"""Which secrets of Fusion's environment tasks find."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from fusion.forkserver.environment import for_tasks, without_login
from fusion.settings import Settings

KEY = "k1:" + "0123456789abcdefghijklmnopqrstuvwxyzABCDEF"
WORLD = {
    "FUSION_REDIS_URL": "redis://user:hunter2@host:6379/0",
    "REDIS_URL": "redis://:other-hunter2@cache/1",
    "FUSION_REDIS_PASSWORD": "hunter2",
    "FUSION_SECRET_KEYS": KEY,
    "FUSION_CALLBACK_SECRETS": "whsec_hunter2",
    "FUSION_ELASTICSEARCH_URL": "https://user:hunter2@es:9200",
    "FUSION_ELASTICSEARCH_PASSWORD": "hunter2",
    "FUSION_ELASTICSEARCH_API_KEY": "hunter2",
    "FUSION_SENTINEL": '{"INSTANCES": [["a", 1]], "PASSWORD": "hunter2", "SENTINEL_KWARGS": {"password": "hunter2", "db": 1}}',
    "HOME": "/home/x",
    "MY_PASSWORD": "a task's own",
}
REPORTING = {
    "FUSION_CALLBACK_SECRETS": None,
    "FUSION_ELASTICSEARCH_PASSWORD": None,
    "FUSION_ELASTICSEARCH_API_KEY": None,
    "FUSION_ELASTICSEARCH_URL": "https://es:9200",
}


def found(how: str, world: dict[str, str] = WORLD) -> dict[str, str | None]:
    settings = Settings(task_secrets=how, redis_url=world.get("FUSION_REDIS_URL") or world.get("REDIS_URL"))
    return for_tasks(settings, world)


def test_a_job_keeps_only_the_variables_needed_to_enqueue() -> None:
    assert found("enqueue") == REPORTING


def test_none_of_them() -> None:
    changed = found("none")
    assert changed == {
        **REPORTING,
        "FUSION_REDIS_URL": "redis://host:6379/0",
        "FUSION_REDIS_PASSWORD": None,
        "FUSION_SECRET_KEYS": None,
        "FUSION_SENTINEL": '{"INSTANCES": [["a", 1]], "SENTINEL_KWARGS": {"db": 1}}',
    }
    left = {name: changed.get(name, value) for name, value in WORLD.items()}
    assert not [name for name, value in left.items() if value and "hunter2" in value and name != "REDIS_URL"]


def test_another_programs_variable_is_touched_where_fusion_goes_by_it() -> None:
    assert found("none", {"REDIS_URL": WORLD["REDIS_URL"]}) == {"REDIS_URL": "redis://cache/1"}


def test_all_of_them() -> None:
    assert found("all") == {}


def test_no_setting_that_holds_a_secret_is_forgotten() -> None:
    holders = {
        f"FUSION_{item.name.upper()}"
        for item in fields(Settings)
        if re.search(r"password$|secret|api_key|sentinel|(redis|elasticsearch)_url", item.name)
        and not item.name.endswith("_file")
        and item.name != "task_secrets"
    }
    world = dict.fromkeys(holders, "https://user:hunter2@host/") | {"FUSION_SENTINEL": '{"PASSWORD": "x"}'}
    changed = for_tasks(Settings(task_secrets="none"), world)
    assert set(changed) == holders


@pytest.mark.parametrize(
    ("url", "left"),
    [
        ("rediss://:p%40@h/0?ssl_cert_reqs=none", "rediss://h/0?ssl_cert_reqs=none"),
        ("unix://user:pw@/run/redis.sock?db=2&password=x", "unix:///run/redis.sock?db=2"),
        ("redis+sentinel://u:p@a:1,b:2/master/0", "redis+sentinel://a:1,b:2/master/0"),
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://[::1", ""),
        ("", ""),
    ],
)
def test_a_url_without_its_login(url: str, left: str) -> None:
    assert without_login(url) == left
