"""Whatever is wrong with Redis or the settings: one line on stderr, nothing on stdout, exit code 1."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.cli.conftest import Invoke, run_worker
from tests.kit import guarded

EACH = [
    ["info"],
    ["suspend"],
    ["resume"],
    ["requeue", "--all"],
    ["requeue", "x"],
    ["empty", "sms"],
    ["enqueue", "tasks.sms.sendSMS"],
]


def one_line(text: str) -> str:
    assert text.startswith("Error: ")
    assert text.count("\n") == 1
    return text


@pytest.mark.parametrize("args", [*EACH, ["worker", "sms", "--burst"]], ids=" ".join)
def test_redis_down(invoke: Invoke, args: list[str]) -> None:
    result = invoke(*args, "-u", "redis://127.0.0.1:1/3", code=1)
    message = one_line(result.stderr)
    assert "Redis at redis://127.0.0.1:1" in message
    assert "is it running" in message
    assert result.stdout == ""


def test_redis_named_by_the_environment_is_down(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_REDIS_URL", "redis://127.0.0.1:1/3")
    assert "redis://127.0.0.1:1/3" in one_line(invoke("worker", "sms", code=1).stderr)


@pytest.mark.parametrize("args", [*EACH, ["worker", "sms", "--burst"]], ids=" ".join)
def test_wrong_password(invoke: Invoke, redis_url: str, args: list[str]) -> None:
    url = redis_url.replace("unix://", "unix://somebody:hunter2@")
    message = one_line(invoke(*args, "-u", url, code=1).stderr)
    assert "refused the login" in message
    assert "hunter2" not in message


def test_verbose_adds_the_traceback(invoke: Invoke) -> None:
    lines = invoke("info", "-v", "-u", "redis://127.0.0.1:1", code=1).stderr.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1].startswith("Error: Redis at redis://127.0.0.1:1")


def test_a_user_without_rights_learns_which_are_missing(invoke: Invoke, conn: redis.Redis, redis_url: str) -> None:
    conn.acl_setuser("watcher", enabled=True, nopass=True, keys=["*"], commands=["+ping"])
    try:
        message = one_line(invoke("info", "-u", redis_url.replace("unix://", "unix://watcher:x@"), code=1).stderr)
    finally:
        conn.acl_deluser("watcher")
    assert "refused a command" in message


def test_a_wrong_url_is_a_usage_error_that_names_the_flag(invoke: Invoke) -> None:
    message = invoke("info", "-u", "http://localhost", code=2).stderr
    assert "(from flag --url)" in message
    assert "redis://host:6379/0" in message


@pytest.mark.parametrize("args", EACH, ids=" ".join)
def test_a_config_module_that_does_not_exist(invoke: Invoke, args: list[str]) -> None:
    assert "config module 'nowhere' not found, nor wrappers.nowhere" in one_line(invoke(*args, "-c", "nowhere", code=1).stderr)


def test_a_wrong_variable_is_no_usage_error(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_LEASE", "soon")
    assert "(from environment FUSION_LEASE)" in one_line(invoke("info", code=1).stderr)


def test_tasks_that_name_no_module(invoke: Invoke) -> None:
    assert "--tasks 'not a module'" in one_line(invoke("worker", "sms", "--tasks", "not a module", code=1).stderr)


def _keys(conn: redis.Redis, prefix: str) -> list[str]:
    """All there are, but those of the audit."""
    names = [key.decode() for key in conn.keys("*")]
    assert all(name.startswith(prefix) for name in names)
    found = [name.removeprefix(prefix) for name in names]
    assert "audit" in found
    return [name for name in found if name != "audit" and not name.startswith("events:said:")]


def test_the_config_module_is_found_by_path(invoke: Invoke, redis_url: str, conn: redis.Redis, tmp_path: Path) -> None:
    guarded.allow_prefix(conn, "other:")
    (tmp_path / "other_fleet.py").write_text(f"REDIS_URL = {redis_url!r}\nPREFIX = 'other:'\n")
    ended = run_worker("suspend", "-c", "other_fleet", "-P", str(tmp_path), FUSION_REDIS_URL="")
    assert ended.returncode == 0, ended.stderr
    assert _keys(conn, "other:") == ["suspended"]


def test_the_current_directory_is_on_the_path(conn: redis.Redis, tmp_path: Path) -> None:
    guarded.allow_prefix(conn, "here:")
    (tmp_path / "here_only.py").write_text("PREFIX = 'here:'\n")
    assert run_worker("resume", "-c", "here_only", cwd=tmp_path).returncode == 0


def test_the_prefix_flag(invoke: Invoke, conn: redis.Redis) -> None:
    guarded.allow_prefix(conn, "x:")
    invoke("suspend", "--prefix", "x:")
    assert _keys(conn, "x:") == ["suspended"]
    assert "flag --prefix" in invoke("suspend", "--prefix", "a b", code=2).stderr


def test_the_real_process_says_the_same() -> None:
    ended = run_worker("info", "-u", "redis://127.0.0.1:1")
    assert ended.returncode == 1
    assert ended.stdout == ""
    one_line(ended.stderr)
