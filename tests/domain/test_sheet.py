"""The sheet of a job: why it waits, state by state, and what never shows."""

from __future__ import annotations

import redis

from fusion import Queue
from fusion.jobs.sheet import sheet
from fusion.jobs.sheet_document import document
from fusion.store.access import sheet_inspector_of


def test_a_queued_one(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue("tasks.sms.sendSMS", {"to": "+4915112345678"}, job_id="a")
    found = document(sheet(sheet_inspector_of(conn), "a"), details=True)
    assert [one["code"] for one in found["waits"]] == ["no_worker", "turn"]
