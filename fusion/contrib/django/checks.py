"""`manage.py check`: errors in FUSION, and with `--deploy` problems of the Redis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import redis.exceptions
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register

from fusion.contrib.django import conf
from fusion.exceptions import ConfigurationError, FusionError
from fusion.settings import Settings, get_settings
from fusion.store.redis_server import instance


def check_settings(app_configs: Sequence[Any] | None = None, **options: Any) -> list[CheckMessage]:
    """Check the settings.

    E001: FUSION is invalid. W001: no Redis is named, and no built-in one runs. E002: a module of tasks can't be imported. E004: the named
    outbox does not exist.
    """
    try:
        # All at once: people correct them together.
        wrong = [fault for name in getattr(settings, "FUSION", None) or {} if (fault := conf.fault_of(name))]
        if wrong:
            return [Error(fault, id="fusion.E001") for fault in wrong]
        found = Settings.load("fusion.contrib.django.config")
    except ConfigurationError as error:
        return [Error(str(error), id="fusion.E001")]
    return [*_unnamed(found), *_no_outbox(), *_not_imported(found)]


def _unnamed(found: Settings) -> Iterator[CheckMessage]:
    if found.named_url is None and found.sentinel is None and instance.running(found.home) is None:
        yield Warning(
            "no Redis is named for Fusion",
            hint="FUSION = {'REDIS_URL': 'redis://host:6379/0'} in the settings, or the variable FUSION_REDIS_URL",
            id="fusion.W001",
        )


def _no_outbox() -> Iterator[CheckMessage]:
    alias = conf.outbox_alias()
    if alias is None:
        return
    if not apps.is_installed("fusion.contrib.django.outbox"):
        yield Error(
            "FUSION['OUTBOX'] is on, and there is no outbox: jobs are sent to Redis at once, or on commit",
            hint="add 'fusion.contrib.django.outbox' to INSTALLED_APPS, and run manage.py migrate; or take OUTBOX out",
            id="fusion.E004",
        )
    elif alias not in settings.DATABASES:
        yield Error(
            f"FUSION['OUTBOX'] is {alias!r}, and there is no such database",
            hint=f"True, or one of DATABASES: {', '.join(settings.DATABASES)}",
            id="fusion.E004",
        )


def _not_imported(found: Settings) -> Iterator[CheckMessage]:
    for name in found.tasks if apps.ready else ():
        if name in ("*", "tasks") or not all(part.isidentifier() for part in name.split(".")):
            continue
        try:
            import_module(name)
        except Exception as error:
            where = found.origin_of("tasks")
            yield Error(
                f"the task module {name} (from {where}) can't be imported: {type(error).__name__}: {error}",
                hint="no worker has its tasks until it can; correct it, or the name",
                id="fusion.E002",
            )


def check_redis(app_configs: Sequence[Any] | None = None, **options: Any) -> list[CheckMessage]:
    """Check Redis, for `manage.py check --deploy`. E003: a worker could not start, as Redis can't be reached or may evict jobs."""
    from fusion.store.client.connections import connect, one_line
    from fusion.store.client.server import check_server

    try:
        here = get_settings()
        if here.named_url is None and here.sentinel is None:
            return []
        connection = connect(here)
        try:
            check_server(connection, allow_eviction=here.allow_eviction, prefix=here.prefix)
        finally:
            connection.close()
    except FusionError as error:
        return [Error(str(error), id="fusion.E003")]
    except redis.exceptions.RedisError as error:
        return [Error(one_line(error, None), id="fusion.E003")]
    return []


def register_all() -> None:
    """Register the checks; the app calls this when it is ready."""
    register(check_settings, "fusion", Tags.compatibility)
    register(check_redis, "fusion", deploy=True)
