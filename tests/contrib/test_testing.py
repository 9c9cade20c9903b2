"""Backends for tests: as Django's own, with the arguments and options that FusionBackend takes."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def tasks(shop: Path) -> Any:
    from tests.contrib.shop.billing import tasks

    return tasks


def of(name: str) -> Any:
    from django.test import override_settings

    return override_settings(TASKS={"default": {"BACKEND": f"fusion.contrib.django.testing.{name}", "QUEUES": []}})


def test_immediate_runs_a_call_at_once(tasks: Any) -> None:
    moment = datetime(2030, 1, 1, tzinfo=timezone.utc)
    with of("ImmediateBackend"):
        assert tasks.add.enqueue(1, 2).return_value == tasks.add_later.enqueue(1, 2).return_value == 3
        result = tasks.day_after.using(timeout=3).enqueue(moment)
        assert result.return_value == datetime(2030, 1, 2, tzinfo=timezone.utc) and "__fusion__" in result.args[0]
        assert tasks.told.enqueue(often=1).return_value[1:] == [1, "RUNNING", 1, []]
        failed = tasks.refuse.enqueue()
        assert failed.status == "FAILED" and failed.errors[0].exception_class is LookupError
        assert tasks.answer_with_a_function.enqueue().errors[0].exception_class is TypeError


def test_dummy_keeps_what_is_enqueued(tasks: Any) -> None:
    from fusion.contrib.django import protocol

    with of("DummyBackend"):
        result = tasks.day_after.enqueue(datetime(2030, 1, 1, tzinfo=timezone.utc))
        assert protocol.task_backends["default"].results == [result]
        assert tasks.day_after.get_result(result.id) == result
