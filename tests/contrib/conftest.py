"""The shop in this process. Django can be set up but once, so what its app leaves in the process is taken back after each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusion import middleware
from fusion.settings import use_settings
from tests.contrib.databases import CHOSEN, ShopDatabase, postgresql, sqlite
from tests.contrib.harness import Manages

SETTINGS = "tests.contrib.shop.settings"


@pytest.fixture(scope="session")
def shop_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the shop's databases."""
    return tmp_path_factory.mktemp("shop")


@pytest.fixture(scope="session")
def database() -> Iterator[ShopDatabase]:
    """The shop's first database."""
    with postgresql() if CHOSEN == "postgresql" else sqlite() as found:
        yield found


@pytest.fixture(scope="session")
def _set_up(shop_home: Path) -> tuple[Any, ...]:
    """The middleware that the app has registered, which no other tests of this process must have."""
    before, registered = dict(os.environ), middleware.registered
    os.environ |= {"DJANGO_SETTINGS_MODULE": SETTINGS, "SHOP_HOME": str(shop_home)}
    import django

    django.setup()
    from django.core.management import call_command

    for alias in ("default", "archive"):
        call_command("migrate", database=alias, verbosity=0)
    from django.db import connections

    connections.close_all()
    os.environ.clear()
    os.environ.update(before)
    found, middleware.registered = middleware.registered, registered
    return found


@pytest.fixture
def shop(_set_up: tuple[Any, ...], shop_home: Path, database: ShopDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The shop in this process, with empty tables: its settings are Fusion's until the test ends. Processes that the test starts find them, too."""
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", SETTINGS)
    monkeypatch.setenv("SHOP_HOME", str(shop_home))
    monkeypatch.setenv("FUSION_CONFIG", "fusion.contrib.django.config")
    for name, value in database.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(middleware, "registered", _set_up)
    use_settings(None)
    database.use()
    from django.apps import apps

    for model in [*apps.get_models()][::-1]:
        if model._meta.managed and (model._meta.app_label not in ("contenttypes", "auth") or model._meta.model_name == "user"):
            for alias in ("default", "archive"):
                model._base_manager.using(alias).all().delete()
    yield shop_home
    database.leave()


@pytest.fixture
def manages(redis_url: str, shop: Path, tmp_path: Path) -> Iterator[Manages]:
    """`manages.start("fusion_worker", ...)`: processes of the shop that end with the test."""
    group = Manages(redis_url, tmp_path)
    yield group
    group.stop()
