"""A process that is started with an environment finds the settings there that this one has."""

from __future__ import annotations

from typing import Any

import pytest

from fusion.exceptions import ConfigurationError
from fusion.settings import Settings
from fusion.settings.handing_on import environment_for

HOME = {"HOME": "/home/ann"}


@pytest.mark.parametrize(
    ("env", "flags"),
    [
        ({}, {}),
        ({"FUSION_LEASE": "20", "REDIS_URL": "redis://a"}, {"lease": 2.5, "redis_url": "redis://:secret@b/1"}),
        ({}, {"tasks": ["shop.tasks", "mail"], "slots": 4, "memory_throttle": True, "max_payload": "2m", "name": "box1"}),
        ({"FUSION_MEMORY_THROTTLE": "1"}, {"memory_throttle": False, "job_timeout": -1, "memory_throttle_threshold": "95%"}),
        ({"REDIS_HOST": "cache"}, {"redis_host": "db", "redis_port": 7000, "redis_db": 3}),
        ({"REDIS_URL": "redis://a"}, {"sentinel": {"INSTANCES": [["a", 26379]], "MASTER_NAME": "m", "PASSWORD": "secret"}}),
        ({}, {"secret_keys": ["k1:0123456789abcdefghij0123456789abcdefghij"], "callback_secrets": {"*": ["whsec_1", "whsec_2"]}}),
        ({}, {"callback_ports": [443, 8443], "dict_config": {"version": 1}}),
        ({"FUSION_QUEUE_GATES": "sms limit=20 rate=100/60s; email max_wait=5m"}, {"slots": 2}),
    ],
)
def test_settings_are_handed_on_by_the_environment(env: dict[str, str], flags: dict[str, Any]) -> None:
    env = {**HOME, **env}
    settings = Settings.load(env=env, **flags)
    assert Settings.load(env=environment_for(settings, env)) == settings


def test_only_what_would_be_missing_is_added() -> None:
    env = {**HOME, "FUSION_LEASE": "20", "PATH": "/bin", "REDIS_HOST": "cache"}
    settings = Settings.load(env=env, redis_url="redis://b", slots=2)
    assert environment_for(settings, env) == {**env, "FUSION_REDIS_URL": "redis://b", "FUSION_SLOTS": "2"}


def test_what_an_application_made_by_itself_is_not_mixed_with_the_environment() -> None:
    env = {**HOME, "FUSION_LEASE": "20", "FUSION_NAME": "box1", "FUSION_HOME": "/srv"}
    settings = Settings(home="/home/ann", redis_url="redis://a")
    found = Settings.load(env=environment_for(settings, env))
    assert found == settings
    assert (found.lease, found.name) == (30, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [("queue_gates", "sms max_wait=5m"), ("dict_config", {"version": 1, "handlers": {"a": {"stream": object()}}})],
)
def test_a_setting_that_no_variable_can_hold_is_named(name: str, value: object) -> None:
    settings = Settings.load(env=HOME, **{name: value})
    with pytest.raises(
        ConfigurationError, match=f"setting {name} can't be handed to another process .* set FUSION_{name.upper()}"
    ):
        environment_for(settings, HOME)
