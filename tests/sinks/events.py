"""Events as the relay hands them to a sink."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from fusion.events.event import JobEvent

AT = datetime(2026, 1, 31, 9, 30, 0, 123456, tzinfo=timezone.utc)


def event(number: int = 1, status: str = "completed", **fields: Any) -> JobEvent:
    about = {
        "log_tag": "SMS_OTP",
        "func_name": "tasks.sms.send",
        "host": "worker-1",
        "payload": '{"to": "***"}',
        "result": '"ok"',
    }
    return JobEvent(
        **{"id": f"1769851800-{number}", "event": status, "job_id": f"job-{number}", "queue": "sms", "at": AT, **about, **fields}
    )


def some(count: int, start: int = 1, **fields: Any) -> list[JobEvent]:
    return [event(number, **fields) for number in range(start, start + count)]
