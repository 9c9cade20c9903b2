"""The project's settings are Fusion's."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fusion.exceptions import ConfigurationError
from fusion.settings import Settings, get_settings
from tests.architecture.source import ROOT

SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.contrib.shop.settings"}


def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=os.environ | env, capture_output=True, text=True, timeout=60, check=False
    )


def test_settings_of_a_producer_are_those_of_the_project(shop: Path) -> None:
    assert get_settings().lease == 12
    assert get_settings().queues == ("default", "mail")


def test_the_environment_is_above_the_project(shop: Path) -> None:
    code = "import django; django.setup(); from fusion.settings import get_settings as s; print(s().lease, *s().queues)"
    done = run("-c", code, FUSION_LEASE="7")
    assert (done.stdout, done.stderr) == ("7 default mail\n", "")


def test_any_command_reads_them_by_the_module_of_settings(shop: Path) -> None:
    done = run("-m", "fusion", "config", "show", "-c", "fusion.contrib.django.config")
    assert "module tests.contrib.shop.settings (FUSION['LEASE'])" in done.stdout, done.stderr


def test_without_django_one_line_names_the_extra() -> None:
    code = "import sys; sys.modules['django'] = None; from fusion.cli.main import main; sys.argv[0] = 'fusion'; main()"
    done = run("-c", code, "info", "-c", "fusion.contrib.django.config")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "pip install 'fusion-queue[django]'" in done.stderr


def load(**said: Any) -> Settings:
    """The settings of a project whose FUSION says that."""
    from django.test import override_settings

    with override_settings(FUSION=said):
        return get_settings()


@pytest.mark.parametrize(
    ("said", "ttl"),
    [
        ({}, 500),
        ({"PRESERVE_FINISHED_JOBS": False}, 0),
        ({"PRESERVE_FINISHED_JOBS": False, "CLEAR_FINISHED_JOBS_AFTER": 60}, 0),
        ({"PRESERVE_FINISHED_JOBS": True}, 86400),
        ({"CLEAR_FINISHED_JOBS_AFTER": timedelta(hours=2)}, 7200),
        ({"CLEAR_FINISHED_JOBS_AFTER": "3d"}, 3 * 86400),
        ({"PRESERVE_FINISHED_JOBS": True, "CLEAR_FINISHED_JOBS_AFTER": -1}, -1),
    ],
)
def test_how_long_finished_jobs_stay(shop: Path, said: dict[str, Any], ttl: int) -> None:
    assert load(**said).result_ttl == ttl


def test_the_tasks_are_those_of_all_apps_unless_some_are_named(shop: Path) -> None:
    assert load().tasks == ("tests.contrib.shop.orders.tasks", "tests.contrib.shop.billing.tasks")
    assert load(TASKS=["shop"], SETUP=["shop.early"]).tasks == ("shop",)
    assert load(SETUP=["shop.early"]).setup == ("fusion.contrib.django.setup", "shop.early")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"LEESE": 5}, "FUSION['LEESE'] in tests.contrib.shop.settings is not a setting of Fusion; did you mean 'LEASE'?"),
        ({"lease": 5}, "did you mean 'LEASE'?"),
        ({"FUSION_LEASE": 5}, "did you mean 'LEASE'?"),
        ({3: 5}, "docs/settings.md names them"),
        ({"LEASE": "soon"}, "setting lease = 'soon' (from module tests.contrib.shop.settings (FUSION['LEASE'])) is not valid"),
        ({"RESULT_TTL": 5, "PRESERVE_FINISHED_JOBS": True}, "keep one"),
        (
            {"ON_COMMIT": "later"},
            "setting on_commit = 'later' (from module tests.contrib.shop.settings (FUSION['ON_COMMIT'])) is not",
        ),
        ({"OUTBOX": 7}, "use True, False or the alias of a database"),
    ],
)
def test_an_invalid_django_setting_is_named(shop: Path, said: dict[str, Any], told: str) -> None:
    from django.test import override_settings

    with override_settings(FUSION=said), pytest.raises(ConfigurationError) as error:
        get_settings()
    assert told in str(error.value)


def test_no_dict_is_refused(shop: Path) -> None:
    from django.test import override_settings

    with override_settings(FUSION="redis://"), pytest.raises(ConfigurationError, match="write a dict"):
        get_settings()


def test_changed_settings_of_a_test_are_gone_after_it(shop: Path) -> None:
    assert load(LEASE=33).lease == 33
    assert get_settings().lease == 12
