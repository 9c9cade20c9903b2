"""`config show`: every setting, where it comes from, and no secret."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fusion.settings import Settings
from tests.cli.conftest import Invoke
from tests.cli.terminal import terminal

SECRET = "Sup3r-Secret-Sup3r-Secret-Sup3r-Se"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "shopconfig.py").write_text(
        f"LEASE = 12\nFUSION_SLOTS = 3\nQUEUES = ['sms', 'email']\nSECRET_KEYS = ['a:{SECRET}']\n"
        f"DICT_CONFIG = {{'handlers': {{'mail': {{'credentials': ['me', '{SECRET}'], 'filter': object()}}}}}}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in os.environ if name.startswith(("FUSION_", "REDIS_"))]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RQ_REDIS_URL", f"redis://me:{SECRET}@web1/0")
    monkeypatch.setenv("FUSION_SLOTS", "4")
    return "shopconfig"


def test_each_setting_says_where_it_comes_from(invoke: Invoke, module: str) -> None:
    found = json.loads(invoke("config", "show", "-c", module, "--prefix", "x", "--json").stdout)["settings"]
    assert set(found) == set(Settings().masked())
    where = {name: one["from"] for name, one in found.items() if one["origin"] != "default"}
    assert where == {
        "redis_url": "environment RQ_REDIS_URL",
        "prefix": "flag --prefix",
        "queues": "module shopconfig (QUEUES)",
        "lease": "module shopconfig (LEASE)",
        "slots": "environment FUSION_SLOTS",
        "secret_keys": "module shopconfig (SECRET_KEYS)",
        "dict_config": "module shopconfig (DICT_CONFIG)",
    }
    assert (found["slots"]["value"], found["lease"]["value"], found["queues"]["value"]) == (4, 12, ["sms", "email"])
    assert found["task_secrets"]["value"] == "enqueue"
    assert found["dict_config"]["value"]["handlers"]["mail"]["filter"] == "<object>"


@pytest.mark.parametrize("flags", [(), ("--json",), ("--given",), ("redis_url", "secret_keys", "dict_config")])
def test_no_secret_is_shown(invoke: Invoke, module: str, flags: tuple[str, ...]) -> None:
    said = invoke("config", "show", "-c", module, *flags)
    assert SECRET not in said.output
    assert "redis://me:***@web1/0" in said.stdout


def test_only_what_was_given_or_named(invoke: Invoke, module: str) -> None:
    said = invoke("config", "show", "-c", module, "--given").stdout
    assert "job_timeout" not in said
    assert "more at their default; to see all: run_worker.py config show" in said
    assert invoke("config", "show", "-c", module, "FUSION_LEASE").stdout.splitlines()[2].split() == [
        *("lease", "12", "module", "shopconfig", "(LEASE)")
    ]
    assert "did you mean 'lease'?" in invoke("config", "show", "leese", code=2).stderr


def test_a_wrong_setting_is_named(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_LEASE", "soon")
    assert "setting lease = 'soon' (from environment FUSION_LEASE) is not valid" in invoke("config", "show", code=1).stderr


def test_it_fits_the_terminal(module: str) -> None:
    hostile = "/\x1b[2J\u202e" + "x" * 5000
    with terminal("config", "show", columns=80, FUSION_EVENTS_FILE=hostile) as screen:
        assert screen.end() == 0
    lines = screen.drawn.replace("\x1b[32m", "").replace("\x1b[0m", "").splitlines()
    assert max(map(len, lines)) == 79, "one column stays free, where a line is drawn over another"
    assert "\x1b" not in "".join(lines)
    assert "\u202e" not in screen.drawn
