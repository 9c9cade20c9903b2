"""What a callback's body says, and what it never does."""

from __future__ import annotations

import inspect
import json
from datetime import datetime, timedelta, timezone

import pytest

from fusion.delivery.message import message
from fusion.delivery.targets import Policy

ENDED = datetime(2026, 1, 31, 9, 30, tzinfo=timezone.utc)


def test_the_body_is_thin_json_in_the_standards_form() -> None:
    body = message(
        job_id="j-1", queue="sms", status="finished", ended_at=ENDED, task="tasks.sms.sendSMS", log_tag="SMS_OTP", attempts=2
    )
    assert json.loads(body) == {
        "type": "job.finished",
        "timestamp": "2026-01-31T09:30:00.000000Z",
        "data": {
            "job_id": "j-1",
            "queue": "sms",
            "status": "finished",
            "task": "tasks.sms.sendSMS",
            "log_tag": "SMS_OTP",
            "attempts": 2,
            "ended_at": "2026-01-31T09:30:00.000000Z",
            "error": None,
        },
    }


def test_the_same_job_gives_the_same_bytes() -> None:
    """A retry after a restart is signed anew, but must be the same message."""
    here = ENDED.astimezone(timezone(timedelta(hours=2)))
    assert message(job_id="j", queue="q", status="failed", ended_at=ENDED) == message(
        job_id="j", queue="q", status="failed", ended_at=here
    )


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        ("builtins.ValueError", "builtins.ValueError"),
        ("builtins.ValueError: token S3CR3T is wrong", "builtins.ValueError"),
        ("ValueError: S3CR3T", "ValueError"),
        ("mod.function.<locals>.Oops: S3CR3T", "mod.function.<locals>.Oops"),
        ("модуль.Ошибка: S3CR3T", "модуль.Ошибка"),
        ("S3CR3T is wrong", None),
        ("S3CR3T\nbuiltins.ValueError", None),
        ("", None),
        (": S3CR3T", None),
    ],
)
def test_a_callback_sends_only_the_class_of_an_error(error: str, sent: str | None) -> None:
    body = message(job_id="j", queue="q", status="failed", ended_at=ENDED, error=error)
    assert json.loads(body)["data"]["error"] == sent
    assert b"S3CR3T" not in body


def test_arguments_and_results_can_not_even_be_handed_over() -> None:
    assert set(inspect.signature(message).parameters) == {
        "job_id", "queue", "status", "ended_at", "task", "log_tag", "attempts", "error",
    }  # fmt: skip


@pytest.mark.parametrize("char", ["x", "\0", "\ud800", "\U0001f600", '"'])
def test_the_body_always_fits(char: str) -> None:
    long = char * 100_000
    body = message(
        job_id=long, queue=long, status=long, ended_at=ENDED, task=long, log_tag=long, attempts=10**18, error="x" * 100_000
    )
    assert len(body) < Policy().max_body
    assert body.isascii()
    json.loads(body)


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        message(job_id="j", queue="q", status="failed", ended_at=datetime(2026, 1, 31))  # noqa: DTZ001
