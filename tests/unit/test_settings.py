from __future__ import annotations

import os
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from fusion.exceptions import ConfigurationError
from fusion.kernel import defaults
from fusion.settings import Settings, get_settings, mask_url, use_settings
from fusion.settings.readers import cpus


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the path for config modules; what was imported from it is forgotten again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("instance_x", "wrappers", "wrappers.instance_y"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_defaults_are_those_of_the_defaults_file() -> None:
    settings = Settings.load(env={"HOME": "/home/ann"})
    assert (settings.lease, settings.job_timeout, settings.result_ttl) == (
        defaults.LEASE,
        defaults.JOB_TIMEOUT,
        defaults.RESULT_TTL,
    )
    assert settings.queues == defaults.QUEUES
    assert settings.home == "/home/ann/.local/state/fusion"
    assert settings.tasks == ("tasks",)
    assert settings.slots == 1
    assert settings.origin_of("lease") == "default"
    assert settings == Settings(home=settings.home)


def test_every_layer_overrides_the_one_before(config: Path) -> None:
    (config / "instance_x.py").write_text("LEASE = 10\nIDLE_WAIT = 1\nWORKER_TTL = 100\n")
    env = {"FUSION_LEASE": "20", "FUSION_IDLE_WAIT": "2"}
    settings = Settings.load("instance_x", env=env, lease=40, name=None)
    assert (settings.lease, settings.idle_wait, settings.worker_ttl) == (40, 2, 100)
    assert settings.origin_of("lease") == "flag --lease"
    assert settings.origin_of("idle_wait") == "environment FUSION_IDLE_WAIT"
    assert settings.origin_of("worker_ttl") == "module instance_x (WORKER_TTL)"
    assert settings.origin_of("name") == "default"


def test_config_module_is_looked_for_in_wrappers_too(config: Path) -> None:
    (config / "wrappers").mkdir()
    (config / "wrappers" / "__init__.py").write_text("")
    (config / "wrappers" / "instance_y.py").write_text("NAME = 'box1'\nQUEUES = ['sms', 'email']\n")
    settings = Settings.load(env={"RQ_CONFIG": "instance_y"})
    assert settings.name == "box1"
    assert settings.queues == ("sms", "email")


def test_names_in_a_config_module(config: Path) -> None:
    (config / "instance_x.py").write_text(
        "import json as tasks\n"  # a module of a setting's name is no setting
        "def name(): ...\n"
        "FUSION_LEASE = 12\n"
        "slots = 3\n"
        "SOMETHING_ELSE = object()\n"
        "DICT_CONFIG = {'version': 1}\n"
    )
    settings = Settings.load("instance_x", env={})
    assert settings.tasks == ("tasks",)
    assert settings.name is None
    assert (settings.lease, settings.slots, settings.dict_config) == (12, 3, {"version": 1})


def test_missing_config_module_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'no_such_instance' not found, nor wrappers\.no_such_instance; give -c"):
        Settings.load("no_such_instance", env={})


def test_config_module_that_lacks_an_import_says_which(config: Path) -> None:
    (config / "instance_x.py").write_text("import no_such_library\n")
    with pytest.raises(ConfigurationError, match=r"instance_x.*no_such_library"):
        Settings.load("instance_x", env={})


def test_config_module_with_an_error_is_a_configuration_error(config: Path) -> None:
    (config / "instance_x.py").write_text("LEASE = 1 / 0\n")
    with pytest.raises(ConfigurationError, match=r"instance_x.*ZeroDivisionError"):
        Settings.load("instance_x", env={})


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({"FUSION_REDIS_URL": "redis://a", "REDIS_URL": "redis://b", "RQ_REDIS_URL": "redis://c"}, "redis://a"),
        ({"REDIS_URL": "redis://b", "RQ_REDIS_URL": "redis://c"}, "redis://b"),
        ({"RQ_REDIS_URL": "redis://c"}, "redis://c"),
        ({"REDIS_HOST": "h"}, "redis://h:6379/0"),
        ({"REDIS_HOST": "::1", "REDIS_PORT": "7000", "REDIS_DB": "3", "REDIS_SSL": "yes"}, "rediss://[::1]:7000/3"),
        ({"REDIS_PORT": "7000"}, "redis://localhost:7000/0"),
        ({"FUSION_REDIS_PORT": "tcp://10.0.0.1:6379"}, None),
        ({"REDIS_PORT": "tcp://10.0.0.1:6379"}, None),  # what Kubernetes sets beside a service called redis
        ({}, None),
    ],
)
def test_which_redis_the_environment_names(env: dict[str, str], url: str | None) -> None:
    named = Settings.load(env=env).named_url
    assert (named and named[0]) == url


def test_a_later_layer_that_names_a_redis_overrides_every_other_way_of_naming_one(config: Path) -> None:
    (config / "instance_x.py").write_text("SENTINEL = {'MASTER_NAME': 'm'}\nREDIS_HOST = 'ignored'\n")
    assert Settings.load("instance_x", env={}).sentinel == {"MASTER_NAME": "m"}
    assert Settings.load("instance_x", env={}).redis_host is None
    by_env = Settings.load("instance_x", env={"REDIS_HOST": "h"})
    assert by_env.sentinel is None
    assert by_env.named_url == ("redis://h:6379/0", "environment REDIS_HOST")
    by_flag = Settings.load("instance_x", env={"REDIS_HOST": "h"}, redis_url="redis://flag")
    assert by_flag.named_url == ("redis://flag", "flag --redis-url")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("job_timeout", "5m", 300),
        ("job_timeout", "-1", -1),
        ("job_timeout", "1.5", 1.5),
        ("job_timeout", "3650d", 3650 * 86400),
        ("result_ttl", "1d", 86400),
        ("max_payload", "512k", 512 * 1024),
        ("max_result", "1MiB", 1024 * 1024),
        ("queues", "sms, email,sms", ("sms", "email")),
        ("allow_pickle", "1", True),
        ("allow_eviction", "off", False),
        ("sentinel", '{"DB": 1}', {"DB": 1}),
        ("preload", "STRICT", "strict"),
        ("horses", "3", 3),
        ("max_horse_rss", "200m", 200 * 1024**2),
        ("claim_ahead", "0", 0),
        ("queue_gates", "sms rate=10/2s max_wait=5m", {"sms": {"rate": "10/2000/5", "max_wait": 300_000}}),
        ("queue_executors", "sms=asyncio", {"sms": "asyncio"}),
        ("callback_secrets", "whsec_1", {"*": ("whsec_1",)}),
    ],
)
def test_values_are_read_from_text_and_stay_as_they_are_in_a_copy(name: str, text: str, value: object) -> None:
    settings = Settings.load(env={f"FUSION_{name.upper()}": text})
    assert getattr(settings, name) == value
    assert getattr(replace(replace(settings, lease=40), lease=41), name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lease", "0"),
        ("lease", "soon"),
        ("lease", "nan"),
        ("lease", "1000000001"),
        ("hang_timeout", "9" * 400),
        ("job_timeout", "20000d"),
        ("worker_ttl", "20000d"),
        ("socket_timeout", "25d"),
        ("idle_wait", "25d"),
        ("elasticsearch_timeout", "25d"),
        ("job_timeout", "-2"),
        ("result_ttl", "1.5"),
        ("worker_ttl", "-1"),
        ("slots", "0"),
        ("slots", "1.5"),
        ("horses", "0"),
        ("horses", "many"),
        ("claim_ahead", "-1"),
        ("max_payload", "-5"),
        ("allow_pickle", "maybe"),
        ("queues", " , "),
        ("serializer", "yaml"),
        ("prefix", "my prefix"),
        ("prefix", "rq:*"),
        ("name", "a b"),
        ("redis_url", "http://localhost"),
        ("sentinel", "[1]"),
        ("redis_port", "70000"),
    ],
)
def test_a_bad_value_names_setting_origin_and_rule(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(env={f"FUSION_{name.upper()}": text})
    message = str(caught.value)
    assert (
        message.startswith(f"setting {name} = {text!r} (from environment FUSION_{name.upper()}) is not valid: ")
        or name == "sentinel"
    )
    assert f"FUSION_{name.upper()}" in message


def test_warm_processes_are_the_slots() -> None:
    assert Settings(horses=3, reserve_high=2).slots == 3
    assert Settings.load(env={"FUSION_HORSES": "auto"}).slots == cpus() >= 1
    assert Settings.load(env={"FUSION_HORSES": "2", "FUSION_SLOTS": "2"}).slots == 2
    with pytest.raises(ConfigurationError, match=r"slots is 1 \(from flag --slots\); give one of the two"):
        Settings.load(env={"FUSION_HORSES": "2"}, slots="1")


@pytest.mark.parametrize(("quota", "expected"), [("150000 100000", 2), ("10000 100000", 1), ("max 100000", None), ("", None)])
def test_cpus_are_those_that_a_container_may_use(tmp_path: Path, quota: str, expected: int | None) -> None:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    assert cpus(str(file)) == (allowed if expected is None else min(allowed, expected))


def test_true_is_no_number() -> None:
    with pytest.raises(ConfigurationError):
        Settings(slots=True)
    with pytest.raises(ConfigurationError):
        Settings(lease=True)


def test_unknown_flag_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match="leese"):
        Settings.load(env={}, leese=3)


def test_no_secret_in_repr_or_errors() -> None:
    settings = Settings.load(
        env={
            "FUSION_REDIS_URL": "redis://ann:hunter2@db:6379/0",
            "FUSION_REDIS_PASSWORD": "hunter2",
            "FUSION_REDIS_PASSWORD_FILE": "/run/secrets/redis",
        }
    )
    assert "hunter2" not in repr(settings)
    assert "redis://ann:***@db:6379/0" in repr(settings)
    assert "/run/secrets/redis" in repr(settings)
    nested = Settings(sentinel={"PASSWORD": "hunter2", "SENTINEL_KWARGS": {"password": "hunter2"}, "DB": 1})
    assert "hunter2" not in str(nested.masked())
    assert nested.masked()["sentinel"]["DB"] == 1
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(env={"FUSION_SENTINEL": '{"PASSWORD": "hunter2"'})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(env={"FUSION_REDIS_URL": "http://ann:hunter2@db"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:p@h/1", "redis://:***@h/1"),
        ("rediss://u:p%40x@h:1/1?ssl_cert_reqs=none", "rediss://u:***@h:1/1?ssl_cert_reqs=none"),
        ("redis://u:p/w?@h", "redis://u:***@h"),
        ("unix:///tmp/r.sock?db=1&password=p", "unix:///tmp/r.sock?db=1&password=***"),
        ("redis+sentinel://:p@a:1,b:2/m/0", "redis+sentinel://:***@a:1,b:2/m/0"),
    ],
)
def test_mask_url(url: str, masked: str) -> None:
    assert mask_url(url) == masked


def test_password_file_is_read_when_asked(tmp_path: Path) -> None:
    file = tmp_path / "password"
    settings = Settings(redis_password_file=str(file))
    with pytest.raises(ConfigurationError, match=r"password.*can't be read"):
        settings.password()
    file.write_text("first\n")
    assert settings.password() == "first"
    file.write_text("second\n")
    assert settings.password() == "second"


def test_current_settings_are_loaded_once_and_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_LEASE", "11")
    first = get_settings()
    assert first.lease == 11
    monkeypatch.setenv("FUSION_LEASE", "12")
    assert get_settings() is first
    mine = Settings(lease=13)
    assert use_settings(mine) is first
    assert get_settings() is mine
    use_settings(None)
    assert get_settings().lease == 12


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ("process", None, 1)),
        ({"slots": 3}, ("process", None, 3)),
        ({"horses": 2}, ("pool", 2, 2)),
        ({"executor": "pool"}, ("pool", cpus(), cpus())),
        ({"executor": "thread"}, ("thread", 1, 25)),
        ({"executor": "asyncio"}, ("asyncio", 1, 200)),
        ({"executor": "asyncio", "horses": 2, "concurrency": 30}, ("asyncio", 2, 60)),
    ],
)
def test_executors(given: dict[str, Any], found: tuple[str, int | None, int]) -> None:
    settings = Settings(**given)
    assert (settings.executor, settings.horses, settings.slots) == found
    assert replace(settings, name="a") == replace(settings, name="a"), "what was filled in agrees with itself"


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ({"executor": "process", "horses": 2}, "say executor pool"),
        ({"executor": "pool", "concurrency": 2}, "say executor asyncio, or leave concurrency out"),
        ({"concurrency": 2}, "say executor asyncio"),
        ({"executor": "asyncio", "threads": 2}, "say executor thread"),
        ({"executor": "asyncio", "slots": 7}, "1 times 200; leave slots out, or say concurrency in its place"),
        ({"executor": "asyncio", "max_job_memory": 100}, "use max_horse_rss"),
        ({"executor": "green"}, "asyncio"),
        ({"slots": 2000}, "use at most 1024 processes"),
    ],
)
def test_executors_that_contradict_what_else_is_said(given: dict[str, Any], fix: str) -> None:
    with pytest.raises(ConfigurationError, match=fix):
        Settings(**given)


@pytest.mark.parametrize("scheme", ["tcp", "udp", "sctp"])
def test_what_kubernetes_sets_beside_a_service_of_our_name_is_no_setting(scheme: str) -> None:
    names = [f"FUSION_{item.name.upper()}" for item in fields(Settings) if item.name.endswith("_port")]
    assert len(names) == 3
    found = Settings.load(env=dict.fromkeys(names, f"{scheme}://10.0.0.1:8080"))
    assert (found.server_port, found.probe_port, found.redis_port) == (Settings().server_port, None, None)
    with pytest.raises(ConfigurationError, match="server_port"):
        Settings.load(env={"FUSION_SERVER_PORT": "http://10.0.0.1:8080"})
