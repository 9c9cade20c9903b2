"""Jobs enqueued for a time, on a real Redis without a worker: when they are due, moving and canceling them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
import redis

from fusion import Job, Queue, Retry, ScheduledJobRegistry
from fusion.exceptions import DuplicateJob, InvalidJobOperation, NoSuchJobError
from fusion.store.access import broker_of
from fusion.store.layout.records import NewJob
from fusion.store.write import queue_calls
from tests.domain.conftest import Bench
from tests.faults.rig.conservation import check_conservation
from tests.jobs import basic
from tests.kit.hands import Hand, drain, fields_of, now_ms, promote_all, status_of, wire
from wrappers.task_queue import enqueue_bulk, enqueue_sms

SCHEDULED = "rq:scheduler:scheduled_jobs"
HOUR = dt.timedelta(hours=1)


def soon(**ahead: float) -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc) + dt.timedelta(**ahead)


def due_ms(conn: redis.Redis, job_id: str) -> int:
    score = conn.zscore(SCHEDULED, job_id)
    assert score is not None
    return round(score * 1000)


# -- enqueueing


def test_enqueueing_for_a_time_is_one_round_trip_and_its_job_needs_no_reading(conn: redis.Redis) -> None:
    Queue("sms").enqueue(basic.noop, job_id="warm-up")
    when = soon(hours=1)
    with wire(conn) as sent:
        at = Queue("sms", conn).enqueue_at(when, basic.add, 1, b=2, priority=2, description="sum", meta={"a": 1}, job_id="at")
        in_ = Queue("sms", conn).enqueue_in(HOUR, basic.add, 1, 2, job_id="in")
        statuses = [job.get_status(refresh=False) for job in (at, in_)]
    assert sent == ["EVALSHA", "EVALSHA"]
    assert statuses == ["scheduled", "scheduled"]
    assert (at.func_name, at.args, at.kwargs, at.priority) == ("tests.jobs.basic.add", (1,), {"b": 2}, 2)
    for job in (at, in_):
        again = Job.fetch(job.id)
        for name in (
            "args",
            "kwargs",
            "priority",
            "description",
            "meta",
            "created_at",
            "enqueued_at",
            "origin",
            "original_queue",
        ):
            assert getattr(again, name) == getattr(job, name), name
    assert due_ms(conn, "at") == round(when.timestamp() * 1000)
    assert Queue("sms").get_job_ids() == ["warm-up"]
    assert check_conservation(conn, ["at", "in"]) == {"at": "scheduled", "in": "scheduled"}


def test_a_delay_counts_by_the_servers_clock(conn: redis.Redis) -> None:
    before = now_ms(conn)
    jobs = [Queue("sms").enqueue_in(delta, basic.noop) for delta in ("5m", 300, 300.0, dt.timedelta(minutes=5))]
    after = now_ms(conn)
    for job in jobs:
        assert before + 300_000 <= due_ms(conn, job.id) <= after + 300_000
        assert job.created_at is not None
        assert due_ms(conn, job.id) - 300_000 == int(job.created_at.timestamp() * 1000)


@pytest.mark.parametrize("when", [dt.datetime(1969, 12, 31, tzinfo=dt.timezone.utc), "now", -3600.0])
def test_a_time_in_the_past_is_now(conn: redis.Redis, when: Any) -> None:
    moment = when if isinstance(when, dt.datetime) else soon(seconds=0 if when == "now" else when)
    job = Queue("sms").enqueue_at(moment, basic.noop)
    assert job.get_status(refresh=False) == job.get_status() == "queued"
    assert job.scheduled_at() is None
    assert [claimed.id for claimed in Hand(broker_of(conn), "sms").claim()] == [job.id]
    assert Queue("sms").enqueue_in(0, basic.noop).get_status(refresh=False) == "queued"


def test_the_state_of_a_scheduled_job_is_that_of_the_script(conn: redis.Redis) -> None:
    """Around now, where our clock could not tell."""
    told, stored = [], []
    for n in range(600):
        job = Queue("sms").enqueue_at(soon(milliseconds=n % 6 - 2), basic.noop)
        told.append(str(job.get_status(refresh=False)))
        stored.append(status_of(conn, job.id))
    assert told == stored
    assert set(told) == {"queued", "scheduled"}


@pytest.mark.parametrize(
    ("due", "delay", "waits"),
    [
        (1.123, None, False),
        (1.124, None, True),
        (0.0, None, False),
        (2.0, None, True),
        (None, 0.0, False),
        (None, 0.0004, False),
        (None, 0.001, True),
        (None, None, False),
    ],
)
def test_the_scripts_clock_is_one_of_whole_milliseconds(due: float | None, delay: float | None, waits: bool) -> None:
    assert queue_calls.waits(NewJob("j", 1, {}, due=due, delay=delay), "1970-01-01T00:00:01.123999Z") is waits


FAR = dt.datetime(2100, 1, 1, tzinfo=dt.timezone.utc)
NAIVE = dt.datetime(2030, 1, 1)  # noqa: DTZ001 - the point
WRONG: list[tuple[str, Any, type[Exception], str]] = [
    ("enqueue_at", NAIVE, ValueError, "no time zone; use datetime.now(timezone.utc) + timedelta(minutes=5), or datetime(2030"),
    ("enqueue_at", FAR, ValueError, "(31 years) ahead"),
    ("enqueue_at", dt.datetime.max.replace(tzinfo=dt.timezone.utc), ValueError, "(31 years) ahead"),
    ("enqueue_at", dt.date(2030, 1, 1), TypeError, "is not a datetime; use datetime.now(timezone.utc)"),
    ("enqueue_at", 1_900_000_000, TypeError, "is not a datetime"),
    ("enqueue_at", float("nan"), TypeError, "nan is not a datetime"),
    ("enqueue_at", "2030-01-01T00:00Z", TypeError, "is not a datetime"),
    ("enqueue_at", "tests.jobs.basic.noop", TypeError, "is not a datetime"),
    ("enqueue_at", None, TypeError, "to run it at once use enqueue()"),
    ("enqueue_in", -1, ValueError, "-1 must be from 0"),
    ("enqueue_in", dt.timedelta(seconds=-0.001), ValueError, "must be from 0"),
    ("enqueue_in", 1e9 + 1, ValueError, "must be from 0 to 1000000000 seconds"),
    ("enqueue_in", float("nan"), ValueError, "nan is not a duration"),
    ("enqueue_in", float("inf"), ValueError, "inf is not a duration"),
    ("enqueue_in", "soon", ValueError, "'soon' is not a duration; use seconds, a timedelta, or a text like"),
    ("enqueue_in", FAR, ValueError, "is not a duration"),
    ("enqueue_in", None, TypeError, "to run it at once use enqueue()"),
]


@pytest.mark.parametrize(("method", "when", "error", "said"), WRONG, ids=[f"{row[0]} {row[1]}"[:40] for row in WRONG])
def test_a_wrong_time_is_refused_at_the_call_and_nothing_is_written(
    conn: redis.Redis, method: str, when: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught:
        getattr(Queue("sms"), method)(when, basic.noop)
    assert said in str(caught.value)
    if when is not None:
        with pytest.raises(error):
            Queue.prepare_data(basic.noop, **{method: when})
    assert conn.dbsize() == 0


def test_a_time_is_given_once(conn: redis.Redis) -> None:
    for more in ({"enqueue_in": 5}, {"enqueue_at": soon(hours=2)}):
        with pytest.raises(ValueError, match=r"enqueue_at\(\) has its time already"):
            Queue("sms").enqueue_at(soon(hours=1), basic.noop, **more)
    with pytest.raises(ValueError, match="not both"):
        Queue("sms").enqueue(basic.noop, enqueue_at=soon(hours=1), enqueue_in=5)
    assert conn.dbsize() == 0
    job = Queue("sms").enqueue_call(basic.noop, kwargs={"enqueue_in": "the task's own"}, enqueue_in=5)
    assert (job.kwargs, job.get_status()) == ({"enqueue_in": "the task's own"}, "scheduled")


# -- what the other options mean


def test_a_ttl_begins_when_the_job_is_due(conn: redis.Redis) -> None:
    Queue("sms").enqueue_at(soon(hours=1), basic.noop, ttl=60, job_id="at")
    Queue("sms").enqueue_in(HOUR, basic.noop, ttl="1m", job_id="in")
    Queue("sms").enqueue_at(soon(hours=-1), basic.noop, ttl=60, job_id="past")
    for job_id in ("at", "in"):
        assert int(fields_of(conn, job_id)["expires_at"]) == due_ms(conn, job_id) + 60_000
    assert 50_000 < int(fields_of(conn, "past")["expires_at"]) - now_ms(conn) <= 60_000


@pytest.mark.parametrize("queue", ["sms", "scheduler"])
def test_once_due_it_stands_where_its_options_say(conn: redis.Redis, queue: str) -> None:
    put = Queue(queue).enqueue_in
    put(1, basic.noop, job_id="back")
    put(1, basic.noop, job_id="front", at_front=True)
    put(1, basic.noop, job_id="high", priority=2)
    Queue(queue).enqueue(basic.noop, job_id="waiting")
    promote_all(broker_of(conn), conn)
    order = drain(Hand(broker_of(conn), queue))
    if queue == "sms":
        assert order == ["high", "front", "waiting", "back"]
    else:
        assert order[0] == "front"
        assert sorted(order) == ["back", "front", "high", "waiting"]


def test_its_retry_waits_by_its_own_policy(conn: redis.Redis) -> None:
    job = Queue("sms").enqueue_in(1, basic.noop, retry=Retry(2, interval=30), log_tag="SMS_OTP", on_lost="fail")
    again = Job.fetch(job.id)
    assert again.retry is not None
    assert (again.retry.max, again.log_tag, fields_of(conn, job.id)["on_lost"]) == (2, "SMS_OTP", "fail")


def test_an_id_is_taken_while_its_job_is_scheduled(conn: redis.Redis) -> None:
    Queue("sms").enqueue_in(HOUR, basic.noop, job_id="once")
    for enqueue in (Queue("sms").enqueue, Queue("email").enqueue):
        with pytest.raises(DuplicateJob, match="'once' is taken and is scheduled"):
            enqueue(basic.add, 1, 2, job_id="once")
    with pytest.raises(DuplicateJob, match="is scheduled"):
        Queue("sms").enqueue_in(5, basic.noop, job_id="once")
    assert Job.fetch("once").func_name == "tests.jobs.basic.noop"
    Job.fetch("once").cancel()
    assert Queue("sms").enqueue_in(HOUR, basic.noop, job_id="once").get_status() == "scheduled"
    check_conservation(conn, ["once"])


# -- many


def test_many_for_a_time_are_one_round_trip(conn: redis.Redis) -> None:
    Queue("sms").enqueue(basic.noop).delete()
    when = soon(hours=1)
    datas = [Queue.prepare_data(basic.noop, job_id=f"at{n}", enqueue_at=when) for n in range(3)]
    datas += [Queue.prepare_data(basic.noop, job_id=f"in{n}", enqueue_in="2h") for n in range(3)]
    datas += [
        Queue.prepare_data(basic.noop, job_id="now"),
        Queue.prepare_data(basic.noop, job_id="past", enqueue_at=soon(hours=-1)),
    ]
    with wire(conn) as sent:
        jobs = Queue("sms", conn).enqueue_many(datas)
    assert sent == ["EVALSHA"]
    told = {job.id: str(job.get_status(refresh=False)) for job in jobs}
    assert told == check_conservation(conn, told)
    assert [job_id for job_id, status in told.items() if status == "queued"] == ["now", "past"]
    assert Queue("sms").get_job_ids() == ["now", "past"]
    assert ScheduledJobRegistry().get_job_ids() == ["at0", "at1", "at2", "in0", "in1", "in2"]


def test_the_services_functions_take_a_time(conn: redis.Redis) -> None:
    payload = {"to": "+4915112345678", "text": "x"}
    when = soon(hours=1).replace(microsecond=0)
    single = enqueue_sms(payload, "SMS_REMINDER", enqueue_at=when)
    bulk = enqueue_bulk([("SMS_CAMPAIGN", payload), ("EMAIL_CAMPAIGN", payload), ("SMS_OTP", payload)], enqueue_in="2h")
    assert {str(job.get_status()) for job in (single, *bulk)} == {"scheduled"}
    assert single.scheduled_at() == when
    otp = bulk[1]
    assert otp.log_tag == "SMS_OTP"
    assert int(fields_of(conn, otp.id)["expires_at"]) == due_ms(conn, otp.id) + 300_000
    with pytest.raises(ValueError, match="no time zone"):
        enqueue_bulk([("SMS_CAMPAIGN", payload)], enqueue_at=NAIVE)
    assert len(ScheduledJobRegistry()) == 4


# -- moving


def test_when_a_job_is_due(bench: Bench) -> None:
    when = soon(hours=1).replace(microsecond=250_000)
    job = bench.queue.enqueue_at(when, basic.noop)
    with wire(bench.conn) as sent:
        assert job.scheduled_at() == when
    assert sent == ["ZSCORE"]
    assert bench.job("queued").scheduled_at() is None
    assert Job("nobody", {}).scheduled_at() is None
    retried = bench.job("scheduled", priority=2)
    moment = retried.scheduled_at()
    assert moment is not None
    assert dt.timedelta(minutes=59) < moment - soon() <= HOUR


def test_rescheduling_to_a_time_and_by_a_delay(bench: Bench) -> None:
    job = bench.queue.enqueue_in(HOUR, basic.noop, ttl=60)
    later = soon(days=2).replace(microsecond=0)
    job.reschedule(later + HOUR)  # the server knows the script
    with wire(bench.conn) as sent:
        assert job.reschedule(later) == later
    assert sent == ["EVALSHA"]
    assert job.scheduled_at() == later
    assert int(fields_of(bench.conn, job.id)["expires_at"]) == round(later.timestamp() * 1000) + 60_000
    for delta in ("30m", 1800, dt.timedelta(minutes=30)):
        before = now_ms(bench.conn)
        with wire(bench.conn) as sent:
            told = job.reschedule(delta)
        assert sent == ["TIME", "EVALSHA"]
        assert before + 1_800_000 <= due_ms(bench.conn, job.id) <= now_ms(bench.conn) + 1_800_001  # rounded
        assert told == job.scheduled_at()
    assert check_conservation(bench.conn, [job.id]) == {job.id: "scheduled"}


def test_rescheduled_to_the_past_it_is_due(bench: Bench) -> None:
    job = bench.queue.enqueue_in(HOUR, basic.noop)
    job.reschedule(soon(hours=-1))
    assert job.get_status() == "scheduled"
    assert broker_of(bench.conn).promote()[:2] == (1, None)
    assert [claimed.id for claimed in bench.hand.claim()] == [job.id]


@pytest.mark.parametrize("state", Bench.STATES)
def test_rescheduling_in_each_state(bench: Bench, state: str) -> None:
    """`scheduled` is here a job that waits for a retry."""
    job = bench.job(state)
    if state == "scheduled":
        job.reschedule(60)
        due = job.scheduled_at()
        assert due is not None
        # The schedule is in whole milliseconds.
        assert dt.timedelta(seconds=30) < due - soon() <= dt.timedelta(seconds=60, milliseconds=1)
    else:
        with pytest.raises(InvalidJobOperation, match=f"is {state}; only a scheduled one"):
            job.reschedule(60)
        assert job.get_status() == state
        assert len(ScheduledJobRegistry()) == 0
    check_conservation(bench.conn, [job.id])


def test_rescheduling_an_unknown_job_is_an_error(conn: redis.Redis) -> None:
    for when in (60, soon(hours=1)):
        with pytest.raises(NoSuchJobError, match="no job 'nobody'"):
            Job("nobody", {}).reschedule(when)
    assert conn.dbsize() == 0


@pytest.mark.parametrize(
    ("when", "error"),
    [
        (NAIVE, ValueError),
        (dt.date(2030, 1, 1), TypeError),
        (FAR, ValueError),
        (-1, ValueError),
        (float("nan"), ValueError),
        ("2030-01-01T00:00Z", ValueError),
        (None, ValueError),
    ],
    ids=str,
)
def test_a_wrong_time_moves_nothing(conn: redis.Redis, when: Any, error: type[Exception]) -> None:
    job = Queue("sms").enqueue_in(HOUR, basic.noop)
    before = due_ms(conn, job.id)
    with pytest.raises(error, match=r"^reschedule: "):
        job.reschedule(when)
    assert due_ms(conn, job.id) == before


# -- ending


def test_a_canceled_scheduled_job_never_becomes_due(bench: Bench) -> None:
    job = bench.queue.enqueue_in(HOUR, basic.noop)
    other = bench.queue.enqueue_in(HOUR, basic.noop)
    assert job.cancel() == "canceled"
    assert job.cancel() == "canceled"
    assert job.scheduled_at() is None
    promote_all(broker_of(bench.conn), bench.conn)
    assert [claimed.id for claimed in bench.hand.claim(5)] == [other.id]
    assert check_conservation(bench.conn, [job.id, other.id]) == {job.id: "canceled", other.id: "started"}
    job.requeue()
    assert [claimed.id for claimed in bench.hand.claim(5)] == [job.id], "put back, it waits for no time"


def test_deleted_it_is_gone(bench: Bench) -> None:
    job = bench.queue.enqueue_in(HOUR, basic.noop)
    job.delete()
    assert not Job.exists(job.id)
    assert len(ScheduledJobRegistry()) == 0
    assert broker_of(bench.conn).promote()[:2] == (0, None)


def test_emptying_a_queue_leaves_what_is_scheduled(bench: Bench) -> None:
    job = bench.queue.enqueue_in(HOUR, basic.noop)
    bench.queue.enqueue(basic.noop)
    assert bench.queue.empty() == 1
    assert check_conservation(bench.conn, [job.id]) == {job.id: "scheduled"}
