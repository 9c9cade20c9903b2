"""From `enqueue_*` to the provider: a real Redis, a real worker as `worker -c instance --customq all`, the sandbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from fusion import Job, Queue
from tasks.sandbox import Sandbox
from tests.faults.rig.conservation import check_conservation
from tests.kit.waiting import eventually
from tests.kit.workers import WorkerProcess, Workers
from wrappers.task_queue import (
    TASK_TYPES,
    enqueue_bulk,
    enqueue_email,
    enqueue_pn,
    enqueue_sms,
    enqueue_webhook,
    enqueue_whatsapp,
)

HOOK = "https://hooks.example.com/t0ken"
DEVICE = "dQw4w9WgXcQ:APA91bH-example_token"
MAIL = "anna@example.com"
#: By queue: the recipient, and a message to it.
MESSAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "sms": ("+9992015551234", {"to": "+9992015551234", "text": "x"}),
    "email": (MAIL, {"to": MAIL, "subject": "x", "text": "x"}),
    "pn": (DEVICE, {"to": DEVICE, "text": "x"}),
    "webhook": (HOOK, {"url": HOOK, "json": {}}),
    "whatsapp": ("+9992025551234", {"to": "+9992025551234", "text": "x"}),
}
ENQUEUE: dict[str, Callable[..., Job]] = {
    "sms": enqueue_sms,
    "email": enqueue_email,
    "pn": enqueue_pn,
    "webhook": enqueue_webhook,
    "whatsapp": enqueue_whatsapp,
}
Serve = Callable[[], WorkerProcess]


@pytest.fixture
def serve(workers: Workers) -> Serve:
    """Run what there is. What may run is what `instance` says, not what the harness adds."""
    return lambda: workers.burst("-c", "instance", "--customq", "all", env={"FUSION_TASKS": ""})


def delivered(sandbox: Sandbox) -> set[tuple[str, str, str | None, int | None]]:
    return {(one["channel"], one["to"], one["job"], one["priority"]) for one in sandbox.deliveries()}


def test_every_type_of_every_channel_is_delivered_once_at_its_priority(conn: redis.Redis, sandbox: Sandbox, serve: Serve) -> None:
    expected: set[tuple[str, str, str | None, int | None]] = set()
    jobs: dict[str, Job] = {}
    for name, known in TASK_TYPES.items():
        to, payload = MESSAGES[known.queue]
        jobs[name] = ENQUEUE[known.queue](payload, name)
        expected.add((known.queue, to, jobs[name].id, known.priority))
    serve()
    assert delivered(sandbox) == expected
    assert sandbox.stats()["total"] == len(TASK_TYPES)
    for name, job in jobs.items():
        job.refresh()
        assert job.get_status() == "finished", job.reason
        assert (job.result["provider"], job.log_tag) == ("sandbox", name)
    check_conservation(conn, [job.id for job in jobs.values()])


def test_without_a_type_each_channel_has_its_own(conn: redis.Redis) -> None:
    jobs = [ENQUEUE[queue](payload, connection=conn) for queue, (_, payload) in MESSAGES.items()]
    assert [job.log_tag for job in jobs] == ["SMS_OTP", "EMAIL_NOTICE", "PN_NOTICE", "WEBHOOK_EVENT", "WHATSAPP_NOTICE"]
    assert [job.priority for job in jobs] == [2, 1, 1, 1, 1]


def test_a_bulk_of_more_than_one_chunk_waits_in_its_order(conn: redis.Redis) -> None:
    numbers = [f"+99920155{n:05d}1" for n in range(501)]
    jobs = enqueue_bulk((("SMS_CAMPAIGN", {"to": to, "text": "x"}) for to in numbers), connection=conn)
    assert [job.args[0]["to"] for job in jobs] == numbers
    assert Queue("sms", conn).get_job_ids(0, 600) == [job.id for job in jobs]


@pytest.mark.long
@pytest.mark.usefixtures("conn")
def test_a_bulk_over_all_channels_is_delivered(sandbox: Sandbox, serve: Serve) -> None:
    jobs = enqueue_bulk((f"{queue.upper()}_CAMPAIGN", payload) for queue, (_, payload) in list(MESSAGES.items()) * 4)
    serve()
    assert delivered(sandbox) == {(job.origin, MESSAGES[job.origin][0], job.id, 0) for job in jobs}
    assert sandbox.stats()["total"] == len(jobs) == 20


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("4915112345678", "tasks.providers.base.InvalidRecipient: sendSMS: '491********78' is not an E.164 number: "),
        ("+9992015550000", "tasks.providers.base.ProviderRejected: sandbox: HTTP 400: unknown_subscriber +99*********00 "),
    ],
)
@pytest.mark.usefixtures("conn")
def test_a_bad_number_fails_at_once_and_says_why(sandbox: Sandbox, serve: Serve, to: str, reason: str) -> None:
    bad = enqueue_sms({"to": to, "text": "the secret words"})
    good = enqueue_sms(MESSAGES["sms"][1])
    worker = serve()
    bad.refresh()
    assert bad.get_status() == "failed"
    assert reason in bad.reason
    for said in (bad.reason, bad.exc_info or "", worker.output):
        assert to not in said
        assert "the secret words" not in said
    assert delivered(sandbox) == {("sms", good.args[0]["to"], good.id, 2)}


def test_a_provider_that_fails_is_asked_again_later(conn: redis.Redis, sandbox: Sandbox, serve: Serve) -> None:
    sandbox.fault("sms", status=503, count=1)
    job = enqueue_sms(MESSAGES["sms"][1], "SMS_NOTICE")
    serve()
    job.refresh()
    assert job.get_status() == "scheduled"
    assert job.retry_count == 8
    assert conn.hget(f"rq:job:{job.id}", "retryCount") == b"8"
    assert "ProviderUnavailable: sandbox: HTTP 503" in (job.exc_info or "")
    assert sandbox.stats()["refused"] == {"sms": {"503": 1}}
    check_conservation(conn, [job.id])


@pytest.mark.long
@pytest.mark.usefixtures("conn")
def test_nobody_at_home_is_tried_again_later_too(
    sandbox: Sandbox, serve: Serve, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSION_SANDBOX_URL", f"http://127.0.0.1:{closed_port}")
    job = enqueue_sms(MESSAGES["sms"][1], "SMS_NOTICE")
    serve()
    job.refresh()
    assert (job.get_status(), job.retry_count) == ("scheduled", 8)
    assert f"requests.exceptions.ConnectionError: 127.0.0.1:{closed_port}: Connection refused" in (job.exc_info or "")


@pytest.mark.long
def test_a_one_time_password_that_is_too_late_is_never_sent(conn: redis.Redis, sandbox: Sandbox, serve: Serve) -> None:
    late = enqueue_sms(MESSAGES["sms"][1], ttl=1)
    fresh = enqueue_sms(MESSAGES["sms"][1])
    begin = conn.time()
    eventually(lambda: _seconds(conn.time()) - _seconds(begin) > 1, why="the ttl is over")
    serve()
    late.refresh()
    assert (late.get_status(), late.reason) == ("canceled", "expired")
    assert delivered(sandbox) == {("sms", fresh.args[0]["to"], fresh.id, 2)}
    check_conservation(conn, [late.id, fresh.id])


def _seconds(moment: tuple[int, int]) -> float:
    return moment[0] + moment[1] / 1e6
