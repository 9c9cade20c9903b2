"""Options with a wrong name: no road takes them for arguments of the task."""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
import redis

from fusion import AsyncQueue, Queue, Scheduler, job, recurring
from fusion.cron.declared import Declarations, collect
from fusion.kernel.recurrence import _declared
from tests.jobs import basic

WHEN = datetime(2030, 1, 31, tzinfo=timezone.utc)


def takes_them(pace: int = 0, timeout: int = 0, priorty: int = 0, *, job_timout: int = 0) -> None: ...


def takes_two(to: str, /, body: str) -> None: ...


def takes_any(**given: Any) -> None: ...


@functools.wraps(takes_them)
def wraps(*args: Any, **given: Any) -> None: ...


def asynchronous(name: str) -> Callable[..., Any]:
    async def call(*args: Any, **given: Any) -> Any:
        async with AsyncQueue("sms") as queue:
            return await getattr(queue, name)(*args, **given)

    return lambda *args, **given: asyncio.run(call(*args, **given))


#: Every way on which keywords of the task and options come together: called with a function and keywords.
ROADS: dict[str, Callable[..., Any]] = {
    "enqueue": lambda f, **given: Queue("sms").enqueue(f, **given),
    "enqueue_at": lambda f, **given: Queue("sms").enqueue_at(WHEN, f, **given),
    "enqueue_in": lambda f, **given: Queue("sms").enqueue_in(60, f, **given),
    "async enqueue": asynchronous("enqueue"),
    "async enqueue_at": lambda f, **given: asynchronous("enqueue_at")(WHEN, f, **given),
    "async enqueue_in": lambda f, **given: asynchronous("enqueue_in")(60, f, **given),
    "delay": lambda f, **given: job("sms")(f if callable(f) else takes_any).delay(**given),
}
#: Those that have only options.
APART: dict[str, Callable[..., Any]] = {
    "enqueue_call": lambda f, **given: Queue("sms").enqueue_call(f, **given),
    "prepare_data": lambda f, **given: Queue("sms").enqueue_many([Queue.prepare_data(f, **given)]),
    "async enqueue_call": asynchronous("enqueue_call"),
    "async prepare_data": lambda f, **given: asynchronous("enqueue_many")([AsyncQueue.prepare_data(f, **given)]),
    "@job": lambda f, **given: job("sms", **given)(takes_any).delay(),
    "cron": lambda f, **given: Scheduler().cron("* * * * *", f, **given),
    "every": lambda f, **given: Scheduler().every(60, f, **given),
}
MISSPELLED = [
    *("job_timout", "jobTimeout", "job_time_out", "resutl_ttl", "priorty", "at_frnt", "on_sucess", "dependson", "enqueue_inn"),
    *("descripton", "isolat", "log_tga"),
]


@pytest.mark.parametrize("road", [*ROADS, *APART])
@pytest.mark.parametrize("name", MISSPELLED)
def test_a_misspelled_option_never_goes_to_the_task(conn: redis.Redis, road: str, name: str) -> None:
    for func in (takes_two, takes_any, wraps, "tasks.sms.sendSMS", "shop.not_here"):
        if func is wraps and name in ("job_timout", "priorty") and road in ROADS:
            continue  # the function that it wraps takes them
        with pytest.raises((TypeError, ValueError), match=name):
            {**ROADS, **APART}[road](func, **{name: 5})
    assert conn.dbsize() == 0


@pytest.mark.parametrize("road", [*ROADS, *APART])
def test_the_error_names_the_option_that_was_meant(conn: redis.Redis, road: str) -> None:
    with pytest.raises((TypeError, ValueError), match=r"job_timout=.*job_timeout"):
        {**ROADS, **APART}[road]("shop.not_here", job_timout=5)


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    "func", [takes_two, "tests.domain.test_option_names.takes_two", basic.add], ids=["function", "path", "add"]
)
@pytest.mark.parametrize("name", ["pace", "timeout", "to"])
def test_a_function_at_hand_gets_nothing_it_does_not_take(conn: redis.Redis, road: str, func: Any, name: str) -> None:
    if road == "delay" and isinstance(func, str):
        func = takes_two
    with pytest.raises(TypeError, match=rf"\(\) takes no argument {name}="):
        ROADS[road](func, **{name: 5})
    assert conn.dbsize() == 0


def test_old_rqs_timeout_is_led_to_its_name(conn: redis.Redis) -> None:
    with pytest.raises(TypeError, match="did you mean job_timeout"):
        Queue("sms").enqueue(basic.add, timeout=5)
    with pytest.raises(TypeError, match=r"options go to @job\(...\)"):
        job()(takes_two).delay(job_timeout=5)


def test_a_timeout_for_an_unknown_function_goes_to_the_task_with_a_warning(conn: redis.Redis) -> None:
    with pytest.warns(UserWarning, match="timeout= goes to the task; the job's own limit is job_timeout=") as told:
        made = Queue("sms").enqueue("nowhere.at.all", timeout=5)
    assert [one.filename for one in told] == [__file__], "the line that enqueues"
    assert (made.kwargs, made.timeout) == ({"timeout": 5}, 180)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Queue("sms").enqueue("tests.domain.test_option_names.takes_them", timeout=5)
        Queue("sms").enqueue_call("nowhere.at.all", kwargs={"timeout": 5})
        Queue("sms").options(ttl=5).enqueue("nowhere.at.all", timeout=5)


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    "func", [takes_them, wraps, "tests.domain.test_option_names.takes_them"], ids=["function", "wrapped", "path"]
)
def test_a_task_with_a_parameter_named_like_an_option_gets_it(conn: redis.Redis, road: str, func: Any) -> None:
    given = {"pace": 1, "timeout": 2, "priorty": 3, "job_timout": 4}
    if road == "delay" and isinstance(func, str):
        func = takes_them
    assert ROADS[road](func, **given).kwargs == given


@pytest.mark.parametrize("func", [takes_any, "shop.not_here"], ids=["any", "not at hand"])
def test_other_names_pass_where_the_function_takes_any_or_is_not_at_hand(conn: redis.Redis, func: Any) -> None:
    given = {"pace": 1, "timeout": 2, "title": 3, "job_ids": [], "to": "x", "payload": {}, "retries": 2, "entry": 1}
    assert Queue("sms").enqueue(func, **given).kwargs == given


def test_arguments_given_apart_are_the_tasks_whatever_their_names(conn: redis.Redis) -> None:
    given = {"job_timout": 1, "priority": 2, "pace": 3}
    assert Queue("sms").enqueue_call(takes_two, kwargs=given).kwargs == given
    assert Queue("sms").enqueue(takes_two, kwargs=given).kwargs == given
    (made,) = Queue("sms").enqueue_many([Queue.prepare_data("shop.not_here", kwargs=given)])
    assert made.kwargs == given
    entry = Scheduler().cron("* * * * *", "shop.not_here", kwargs=given)
    assert Scheduler().run(entry).kwargs == given
    with pytest.raises(TypeError, match="pace"):
        Queue("sms").enqueue(takes_two, kwargs=given, pace=1)


def test_a_recurring_task_with_a_misspelled_option_is_a_fault_of_its_own() -> None:
    before = list(_declared)
    try:
        recurring(every=60, job_timout=5)(takes_any)
        found: Declarations = collect(())
        assert "job_timout= is not an option of a cron entry; did you mean job_timeout?" in str(found.faults)
    finally:
        _declared[:] = before


@pytest.mark.parametrize("name", ["high", "HIGH", "High"])
@pytest.mark.parametrize("road", [*ROADS, *APART])
def test_a_priority_has_a_name_on_every_road(conn: redis.Redis, road: str, name: str) -> None:
    if road == "delay":
        return  # all its keywords are the task's
    made = {**ROADS, **APART}[road]("shop.not_here", priority=name)
    if road in ("cron", "every"):
        made = Scheduler().run(made)
    assert (made[0] if isinstance(made, list) else made).priority == 2


def test_checking_imports_nothing(conn: redis.Redis) -> None:
    import sys

    Queue("sms").enqueue("tests.jobs.hostile.nothing", some=1)
    Queue("sms").enqueue("antigravity.nothing", some=1)
    assert "antigravity" not in sys.modules
