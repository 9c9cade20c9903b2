"""`Queue.options(...)`: options apart from the task's arguments."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import redis

from fusion import AsyncQueue, Job, Queue, Retry
from fusion.exceptions import OptionError, UnknownOption

WHEN = datetime(2040, 1, 31, tzinfo=timezone.utc)
PATH = "shop.not_here"


def takes_options(priority: int, ttl: str = "", *, job_timeout: int = 0) -> None: ...


def takes_two(to: str, body: str = "") -> None: ...


def takes_any(*args: Any, **given: Any) -> None: ...


def test_a_job_has_the_options_and_the_function_its_arguments(conn: redis.Redis) -> None:
    bound = Queue("sms").options(priority="high", ttl="5m", job_timeout=30, retry=Retry(2), meta={"a": 1}, log_tag="SMS_OTP")
    made = bound.enqueue(takes_two, "+49", body="Hi")
    job = Job.fetch(made.id, conn)
    assert (job.origin, job.priority, job.timeout, job.retry, job.meta, job.log_tag) == (
        "sms",
        2,
        30,
        Retry(2),
        {"a": 1},
        "SMS_OTP",
    )
    assert conn.hget(f"rq:job:{job.id}", "ttl") == b"300"
    assert (job.args, job.kwargs) == (("+49",), {"body": "Hi"})


@pytest.mark.parametrize("func", [takes_any, PATH], ids=["takes any", "not at hand"])
def test_arguments_are_the_functions_whatever_their_names(conn: redis.Redis, func: Any) -> None:
    given = {"priority": 7, "ttl": "soon", "args": [1], "kwargs": {}, "job_timout": 3, "depends_on": "x", "f": 1, "timeout": 2}
    bound = Queue("sms").options(priority="low")
    for job in (
        bound.enqueue(func, 1, **given),
        bound.enqueue_at(WHEN, func, 1, **given),
        bound.enqueue_in(60, func, 1, **given),
    ):
        found = Job.fetch(job.id, conn)
        assert (found.args, found.kwargs, found.priority) == ((1,), given, 0)
    (sent,) = Queue("sms").enqueue_many([bound.prepare_data(func, 1, **given)])
    assert (sent.args, sent.kwargs, sent.priority) == ((1,), given, 0)


def test_a_function_that_has_an_options_name_as_parameter_gets_its_argument(conn: redis.Redis) -> None:
    job = Queue("sms").options(priority="high", job_timeout=9).enqueue(takes_options, 3, ttl="x", job_timeout=4)
    assert (job.args, job.kwargs, job.priority, job.timeout) == ((3,), {"ttl": "x", "job_timeout": 4}, 2, 9)


def test_an_argument_that_the_function_does_not_take_is_refused(conn: redis.Redis) -> None:
    bound = Queue("sms").options(priority="high")
    for call in (bound.enqueue, bound.prepare_data):
        with pytest.raises(TypeError, match=r"takes_two\(\) takes no argument ttl=; options go into options"):
            call(takes_two, "x", ttl=5)
    assert conn.dbsize() == 0


def test_wrong_options_are_named_and_nothing_is_written(conn: redis.Redis) -> None:
    with pytest.raises(UnknownOption, match=r"there is no option job_timout=; did you mean job_timeout\?"):
        Queue("sms").options(job_timout=5)
    with pytest.raises(OptionError, match="ttl=0: use a duration"):
        Queue("sms").options(ttl=0).enqueue(PATH)
    with pytest.raises(ValueError, match="has its time already"):
        Queue("sms").options(enqueue_in=5).enqueue_at(WHEN, PATH)
    with pytest.raises(ValueError, match="durability= belongs to the call"):
        Queue("sms").options(durability="replicated").prepare_data(PATH)
    assert conn.dbsize() == 0


def test_it_never_changes_and_more_options_make_another(conn: redis.Redis) -> None:
    base = Queue("sms", default_timeout=7).options(priority="high", ttl=60)
    more = base.options(ttl=90, job_timeout=8)
    assert [job.timeout for job in (base.enqueue(PATH), more.enqueue(PATH))] == [7, 8]
    ttls = [conn.hget(f"rq:job:{bound.enqueue(PATH).id}", "ttl") for bound in (base, more, base)]
    assert ttls == [b"60", b"90", b"60"]
    first, second = base.enqueue(PATH), base.enqueue(PATH)
    assert first.id != second.id
    assert base.prepare_data(PATH).new.fields["timeout"] == 7
    with pytest.raises(AttributeError):
        base.priority = 1  # type: ignore[attr-defined]


def test_times(conn: redis.Redis) -> None:
    bound = Queue("sms").options(priority="high")
    at, later = bound.enqueue_at(WHEN, PATH), bound.enqueue_in(timedelta(minutes=5), PATH)
    assert Job.fetch(at.id, conn).scheduled_at() == WHEN
    assert [job.get_status() for job in (at, later)] == ["scheduled", "scheduled"]
    assert bound.enqueue(PATH).get_status() == "queued"


def test_an_asynchronous_queue_has_the_same(conn: redis.Redis) -> None:
    async def run() -> list[Job]:
        async with AsyncQueue("sms") as queue:
            bound = queue.options(priority="high", ttl="5m")
            jobs = [await bound.enqueue(takes_two, "+49", body="Hi"), await bound.enqueue_at(WHEN, PATH, priority=3)]
            jobs += [await bound.options(priority=0).enqueue_in("5m", PATH)]
            return jobs + await queue.enqueue_many([bound.prepare_data(PATH, ttl=1)])

    jobs = [Job.fetch(job.id, conn) for job in asyncio.run(run())]
    assert [(job.priority, job.get_status(), job.kwargs) for job in jobs] == [
        (2, "queued", {"body": "Hi"}),
        (2, "scheduled", {"priority": 3}),
        (0, "scheduled", {}),
        (2, "queued", {"ttl": 1}),
    ]
    assert {conn.hget(f"rq:job:{job.id}", "ttl") for job in jobs} == {b"300"}
