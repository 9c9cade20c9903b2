"""Edited copies of jobs that have ended."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest
import redis

from fusion import Job, Queue, Retry
from fusion.enqueue.copying import _TAKEN, Edit, copy_job
from fusion.enqueue.options import OPTIONS
from fusion.exceptions import BadSignature, InvalidJobOperation, InvalidName, NoSuchJobError, OptionError, PayloadTooLarge
from fusion.jobs.sheet import sheet
from fusion.settings import Settings, use_settings
from fusion.store.access import sheet_inspector_of
from fusion.store.write.broker import Broker
from fusion.views.base import EVERYONE, to_json
from fusion.views.job_sheet import JobView
from tests.kit.hands import Hand, everything

TASK = "tasks.sms.sendSMS"
KEY = "k1:" + secrets.token_urlsafe(32)


def _failed(conn: redis.Redis, *args: Any, queue: str = "sms", **more: Any) -> str:
    job = Queue(queue, conn).enqueue(TASK, *args, **more)
    hand = Hand(Broker(conn), queue, name=f"w.{secrets.randbelow(10**6)}")
    assert hand.tell(hand.take(), "failed", reason="ValueError: boom") == "ok"
    hand.broker.deregister(hand.name, hand.incarnation)
    return str(job.id)


def _shown(conn: redis.Redis, job_id: str) -> Any:
    return to_json(JobView.of(sheet(sheet_inspector_of(conn), job_id), about=True), EVERYONE)


#: Stored options that a copy keeps in a way of its own, and those that it leaves: when, where and after what the original was to run.
KEPT = set("priority timeout result_ttl ttl description meta success_task_handler failed_task_handler callback_url".split())
LEFT = set(
    "job_id at_front enqueue_in enqueue_at max_queue_length unique_key unique unique_until unique_window on_duplicate max_delay batch parents "
    "durability replicas replicas_timeout on_commit".split()
)


def test_every_option_is_kept_by_a_copy_or_named_as_left() -> None:
    stored = {option.stored for option in OPTIONS}
    assert stored - KEPT - LEFT - {*_TAKEN} == set(), "name it in _TAKEN of fusion/enqueue/copying.py, or here"
    assert not {*_TAKEN} & LEFT


def test_a_copy_is_a_new_job_with_the_same_options(conn: redis.Redis) -> None:
    old = _failed(
        conn, {"to": "+4915112345678", "text": "Hi"}, priority="high", job_timeout="5m", ttl="1h", retry=Retry(5, backoff=2), meta={"k": "x" * 600},
        result_ttl=60, failure_ttl=3600, log_tag="SMS_OTP", concurrency_key="smtp", max_concurrent=3, fair_key="ann", on_failure="tasks.sms.sorry",
        callback_url="https://example.com/x", isolate=True, on_lost="fail", description="an OTP", unique_key="otp", on_success="tasks.sms.glad",
    )  # fmt: skip
    before = conn.hgetall(f"rq:job:{old}")
    edited = json.loads(_shown(conn, old)["arguments"])["args"]
    edited[0]["text"] = "Bye"
    made = Job.fetch(copy_job(conn, old, Edit(args=edited)).id, conn)
    assert made.args == ({"to": "+4915112345678", "text": "Bye"},)
    assert (made.get_status(), made.origin, made.priority, made.timeout, made.result_ttl) == ("queued", "sms", 2, 300, 60)
    assert (made.description, made.log_tag, made.meta, made.concurrency_key) == ("an OTP", "SMS_OTP", {"k": "x" * 600}, "smtp")
    assert made.retry == Retry(5, backoff=2)
    mine = conn.hgetall(f"rq:job:{made.id}")
    for name in (
        b"retry",
        b"on_failure",
        b"on_success",
        b"callback_url",
        b"hooks",
        b"isolate",
        b"on_lost",
        b"fair_key",
        b"ttl",
        b"failure_ttl",
        b"max_concurrent",
    ):
        assert mine[name] == before[name], name
    assert not {b"unique_key", b"batch", b"parents", b"cron", b"history", b"error_class"} & set(mine)
    assert mine[b"ties"] == b"k"
    assert conn.hgetall(f"rq:job:{old}") == {**before, b"copied_to": made.id.encode()}, "the old one stays as it is"
    assert _shown(conn, old)["copied_to"] == [made.id]
    assert _shown(conn, made.id)["copied_from"] == old
    # its slot, its ttl and its place are its own
    hand = Hand(Broker(conn), "sms")
    assert hand.tell(hand.take()) == "ok"


def test_the_last_ten_copies_are_named(conn: redis.Redis) -> None:
    old = _failed(conn)
    ids = [copy_job(conn, old, Edit()).id for _ in range(12)]
    assert _shown(conn, old)["copied_to"] == ids[2:]


def test_another_queue_and_priority(conn: redis.Redis) -> None:
    old = _failed(conn, args=(1, 2), kwargs={"x": 3})
    made = Job.fetch(copy_job(conn, old, Edit(kwargs={"y": 4}, queue="slow", priority="low")).id, conn)
    assert (made.origin, made.priority, made.args, made.kwargs) == ("slow", 0, (1, 2), {"y": 4})
    for edit in (Edit(queue="failed"), Edit(priority="urgent"), Edit(queue="a b")):
        with pytest.raises((OptionError, InvalidName)):
            copy_job(conn, old, edit)


@pytest.mark.parametrize("state", ["queued", "scheduled", "deferred", "started", "blocked", "zombie"])
def test_a_job_that_has_not_ended_is_not_copied(conn: redis.Redis, state: str) -> None:
    Queue("sms", conn).enqueue(TASK, job_id="a")
    conn.hset("rq:job:a", "status", state)
    before = everything(conn)
    with pytest.raises(InvalidJobOperation, match=f"is {state}; only one that has ended"):
        copy_job(conn, "a", Edit())
    assert everything(conn) == before


def test_ends_that_are_copied_and_records_that_are_not(conn: redis.Redis) -> None:
    for verb in ("cancel", "stop"):
        Queue("sms", conn).enqueue(TASK, job_id=verb)
        getattr(Broker(conn), verb)(verb)
        assert copy_job(conn, verb, Edit()).id != verb
    with pytest.raises(NoSuchJobError):
        copy_job(conn, "nobody", Edit())
    ended = {"status": "failed", "origin": "sms"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({**ended, "data": b"[[],{}]", "func": TASK}, "another program's job"),
        ({**ended, "seq": "1", "serializer": "pickle", "data": b"x"}, "are a pickle, which is not looked into"),
        ({**ended, "seq": "1", "data": b"\xff"}, "its arguments can't be read"),
        ({**ended, "seq": "1", "func": TASK, "data": b"[[],{}]", "meta": b"x\xff"}, "its meta can't be read"),
        ({**ended, "seq": "1", "func": TASK, "data": b"[[],{}]", "takes": "1"}, "is a step of a chain"),
        ({**ended, "seq": "1", "origin": "_callbacks", "data": b"[[],{}]"}, "one of Fusion's own"),
    ]
    for fields, why in cases:
        conn.delete("rq:job:a")
        conn.hset("rq:job:a", mapping=fields)
        before = everything(conn)
        with pytest.raises(InvalidJobOperation, match=why):
            copy_job(conn, "a", Edit())
        assert everything(conn) == before


def test_masks_size_and_depth_are_checked_and_nothing_is_written(conn: redis.Redis) -> None:
    old = _failed(conn, {"password": "geheim"})
    deep: Any = []
    for _ in range(70):
        deep = [deep]
    before = everything(conn)
    for edit, error in (
        (Edit(args=[{"password": "***", "to": "***"}]), OptionError),
        (Edit(args=["x" * 600_000]), PayloadTooLarge),
        (Edit(args=[deep]), PayloadTooLarge),
    ):
        with pytest.raises(error) as caught:
            copy_job(conn, old, edit)
        assert "geheim" not in str(caught.value)
    assert everything(conn) == before


def test_the_url_in_a_payload_is_the_new_payloads(conn: redis.Redis) -> None:
    payload = {"callback": 1, "callback_url": "https://old.example/x"}
    old = _failed(conn, payload)
    assert conn.hget(f"rq:job:{old}", "callback_url") == b"https://old.example/x"
    made = copy_job(conn, old, Edit(args=[{**payload, "callback_url": "https://new.example/x"}]))
    assert conn.hget(f"rq:job:{made.id}", "callback_url") == b"https://new.example/x"
    plain = copy_job(conn, old, Edit(args=[{}]))
    assert conn.hget(f"rq:job:{plain.id}", "callback_url") is None
    with pytest.raises(OptionError, match="https"):
        copy_job(conn, old, Edit(args=[{**payload, "callback_url": "http://169.254.169.254/"}]))


def test_a_copy_is_signed_and_takes_nothing_over_that_is_not(conn: redis.Redis) -> None:
    unsigned = _failed(conn)
    use_settings(Settings(secret_keys=(KEY,)))
    signed, forged = _failed(conn), _failed(conn, 1)
    conn.hset(f"rq:job:{forged}", "on_failure", '{"func":"os.system","timeout":1}')
    made = copy_job(conn, signed, Edit(args=[2], queue="slow"))
    assert _shown(conn, made.id)["signature"]["state"] == "signed"
    before = everything(conn)
    for job_id in (unsigned, forged):
        with pytest.raises(BadSignature):
            copy_job(conn, job_id, Edit(args=[2]))
    use_settings(None)
    with pytest.raises(BadSignature, match="no secret_keys to sign"):
        copy_job(conn, signed, Edit())
    assert everything(conn) == before
