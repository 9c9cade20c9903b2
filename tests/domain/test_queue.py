"""Enqueueing and looking at queues, on a real Redis without a worker."""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from fusion import Callback, Connection, Job, PriorityQueue, Queue, Retry
from fusion.exceptions import DuplicateJob, InvalidName, PayloadTooLarge, SerializationError
from fusion.settings import Settings, use_settings
from tests.domain.conftest import Bench
from tests.faults.rig.conservation import check_conservation
from tests.jobs import basic
from tests.jobs.typed import Point
from tests.kit.hands import drain, wire

# -- accepting


def test_an_enqueue_is_one_command_and_its_job_needs_no_reading(conn: redis.Redis) -> None:
    Queue("sms").enqueue(basic.noop)
    with wire(conn) as sent:
        job = Queue("sms", conn).enqueue(basic.add, 1, b=2, priority=2, description="sum", meta={"a": 1}, log_tag="SMS_OTP")
        seen = (job.func_name, job.args, job.kwargs, job.priority, job.description, job.meta, job.log_tag, job.origin)
        assert job.get_status(refresh=False) == "queued"
    assert sent == ["EVALSHA"]
    again = Job.fetch(job.id)
    assert seen == ("tests.jobs.basic.add", (1,), {"b": 2}, 2, "sum", {"a": 1}, "SMS_OTP", "sms")
    for name in (
        "func_name",
        "args",
        "kwargs",
        "priority",
        "description",
        "meta",
        "created_at",
        "enqueued_at",
        "timeout",
        "result_ttl",
    ):
        assert getattr(again, name) == getattr(job, name), name
    assert abs(job.created_at - dt.datetime.now(dt.timezone.utc)) < dt.timedelta(seconds=30)


def test_the_hash_of_a_job_holds_its_options(conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(
        basic.noop,
        job_timeout="1m",
        result_ttl=-1,
        failure_ttl=dt.timedelta(days=1),
        ttl=30,
        retry=Retry(2, interval=[1, 2]),
        on_success=Callback(basic.remember, timeout="5s"),
        on_failure="tests.jobs.basic.complain",
        success_task_handler="https://example.org/ok",
        failed_task_handler="https://example.org/bad",
        on_lost="fail",
    )
    found = {name.decode(): value.decode() for name, value in conn.hgetall(f"rq:job:{job.id}").items()}
    expected = {
        "func": "tests.jobs.basic.noop",
        "data": "[[],{}]",
        "status": "queued",
        "timeout": "60",
        "result_ttl": "-1",
        "failure_ttl": "86400",
        "ttl": "30",
        "retry": '{"max": 2, "interval": [1, 2]}',
        "origin": "sms",
        "on_success": '{"func": "tests.jobs.basic.remember", "timeout": 5.0}',
        "on_failure": '{"func": "tests.jobs.basic.complain", "timeout": 60.0}',
        "success_task_handler": "https://example.org/ok",
        "failed_task_handler": "https://example.org/bad",
        "on_lost": "fail",
    }
    assert {name: found[name] for name in expected} == expected
    assert set(found) - set(expected) == {"created_at", "seq", "hooks", "expires_at"}
    assert dt.datetime.fromisoformat(found["created_at"]).utcoffset() == dt.timedelta(0)
    assert found["created_at"].endswith("Z")


def test_without_options_it_holds_no_more_than_it_must(conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(basic.noop)
    assert {name.decode() for name in conn.hkeys(f"rq:job:{job.id}")} == {"status", "origin", "created_at", "seq", "func", "data"}


class Slotted:
    def method(self) -> None: ...


def _nested() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"priority": 256}, "priority=256"),
    ({"priority": -1}, "priority=-1"),
    ({"priority": 1.5}, "priority=1.5"),
    ({"priority": True}, "priority=True"),
    ({"priority": "highest"}, "priority='highest': use high, moderate, low, or a whole number"),
    ({"job_timeout": 0}, "job_timeout=0"),
    ({"job_timeout": -5}, "job_timeout=-5"),
    ({"job_timeout": "soon"}, "job_timeout: 'soon'"),
    ({"job_timeout": float("nan")}, "job_timeout: nan"),
    ({"job_timeout": float("inf")}, "job_timeout: inf"),
    ({"job_timeout": True}, "job_timeout: True"),
    ({"job_timeout": []}, "job_timeout: "),
    ({"result_ttl": -2}, "result_ttl=-2"),
    ({"result_ttl": "for ever"}, "result_ttl: 'for ever'"),
    ({"failure_ttl": -2}, "failure_ttl=-2"),
    ({"ttl": 0}, "ttl=0"),
    ({"ttl": -1}, "ttl=-1"),
    ({"ttl": dt.timedelta(0)}, "ttl="),
    ({"job_id": "a b"}, "job id 'a b'"),
    ({"job_id": ""}, "job id ''"),
    ({"job_id": "a:b"}, "job id 'a:b'"),
    ({"job_id": "x\n"}, "job id"),
    ({"job_id": "\u00e9"}, "job id"),
    ({"job_id": "x" * 129}, "job id"),
    ({"job_id": 7}, "job id 7"),
    ({"retry": 3}, "retry=3: use Retry"),
    ({"on_lost": "maybe"}, "on_lost='maybe'"),
    ({"depends_on": 7}, "depends_on=7: use a job, its id"),
    ({"repeat": 3}, "repeat= is not supported"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS, ids=[str(row[0])[:40] for row in WRONG_OPTIONS])
def test_a_wrong_option_is_named_and_nothing_is_written(conn: redis.Redis, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Queue("sms").enqueue(basic.noop, **options)
    assert message in str(caught.value)
    assert conn.dbsize() == 0


WRONG_CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    (lambda: None, (), {}, SerializationError, "a lambda has no name"),
    (_nested(), (), {}, SerializationError, "inner is defined inside a function"),
    (Slotted().method, (), {}, SerializationError, "method of an object"),
    (functools.partial(basic.noop), (), {}, SerializationError, "partial"),
    (Slotted, (), {}, SerializationError, "is a type"),
    ("", (), {}, SerializationError, "name is empty"),
    (None, (), {}, SerializationError, "NoneType"),
    (basic.noop, (1, object()), {}, SerializationError, "argument 2 of tests.jobs.basic.noop"),
    (basic.noop, (), {"user": object()}, SerializationError, "keyword 'user' of tests.jobs.basic.noop"),
    (basic.noop, (float("nan"),), {}, SerializationError, "argument 1"),
    (basic.noop, (), {"on_success": lambda *a: None}, SerializationError, "lambda"),
    (basic.noop, (), {"meta": {"x": object()}}, SerializationError, "meta"),
    (basic.noop, ("x" * 600_000,), {}, PayloadTooLarge, "max_payload"),
    (basic.noop, (functools.reduce(lambda inner, _: [inner], range(100), 1),), {}, PayloadTooLarge, "argument 1"),
]


@pytest.mark.parametrize(("func", "args", "kwargs", "error", "message"), WRONG_CALLS, ids=[row[4] for row in WRONG_CALLS])
def test_an_unserializable_argument_is_named_and_nothing_is_written(
    conn: redis.Redis, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        Queue("sms").enqueue(func, *args, **kwargs)
    assert message in str(caught.value)
    assert conn.dbsize() == 0


def test_the_error_names_the_setting_that_helps(conn: redis.Redis) -> None:
    with pytest.raises(SerializationError, match="FUSION_ALLOW_PICKLE=1"):
        Queue("sms").enqueue(basic.noop, object())
    use_settings(Settings.load(serializer="pickle"))
    assert Queue("sms").enqueue(basic.noop, object()).get_status() == "queued"
    with pytest.raises(SerializationError, match="argument 1 of"):
        Queue("sms").enqueue(basic.noop, (x for x in ()))


def test_arguments_either_way_but_not_both(conn: redis.Redis) -> None:
    with pytest.raises(ValueError, match="not both"):
        Queue("sms").enqueue(basic.add, 1, args=(1, 2))
    given = {"a": 1, "priority": 2}
    job = Queue("sms").enqueue(basic.add, b=2, **given)
    assert (job.kwargs, job.priority, given) == ({"b": 2, "a": 1}, 2, {"a": 1, "priority": 2})
    own = Queue("sms").enqueue_call(basic.noop, kwargs={"priority": "theirs", "depends_on": 3}, priority=0)
    assert (own.kwargs, own.priority) == ({"priority": "theirs", "depends_on": 3}, 0)
    with pytest.raises(TypeError, match="prioriti"):
        Queue("sms").enqueue_call(basic.noop, prioriti=2)


def test_all_json_and_our_own_types_are_read_back(conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(basic.noop, Point(1), when=dt.timedelta(minutes=1))
    assert Job.fetch(job.id).args == (Point(1),)
    assert Job.fetch(job.id).kwargs == {"when": dt.timedelta(minutes=1)}


# -- ids


@pytest.mark.parametrize("state", Bench.STATES)
def test_an_id_is_taken_while_its_job_lives(bench: Bench, state: str) -> None:
    bench.job(state, job_id="otp-1")
    if state in ("queued", "started", "scheduled"):
        with pytest.raises(DuplicateJob, match=f"'otp-1' is taken and is {state}") as caught:
            bench.queue.enqueue(basic.add, 1, 2, job_id="otp-1")
        assert (caught.value.job_id, caught.value.status) == ("otp-1", state)
        assert Job.fetch("otp-1").func_name == "tests.jobs.basic.noop"
    else:
        again = Queue("email").enqueue(basic.add, 1, 2, job_id="otp-1", priority=2)
        again.refresh()
        assert (again.get_status(), again.origin, again.original_queue, again.priority) == ("queued", "email", "email", 2)
        assert (again.func_name, again.result, again.exc_info, again.reason, again.ended_at) == (
            "tests.jobs.basic.add",
            None,
            None,
            "",
            None,
        )
        assert (again.attempts, again.deliveries, again.worker_name) == (0, 0, "")
    check_conservation(bench.conn, ["otp-1"])


def test_ids_as_rq_takes_them(conn: redis.Redis) -> None:
    for job_id in ("a", "A-b_9", "x" * 128):
        assert Queue("sms").enqueue(basic.noop, job_id=job_id).id == job_id
    made = {Queue("sms").enqueue(basic.noop).id for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch("[A-Za-z0-9]{22}", job_id) for job_id in made), (
        "none can be taken for an option, nor for one of Fusion's own"
    )


def test_one_id_from_many_threads_is_accepted_once(conn: redis.Redis) -> None:
    def attempt(number: int) -> str:
        try:
            return Queue("sms", conn).enqueue(basic.add, number, 0, job_id="once").id
        except DuplicateJob:
            return "duplicate"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(attempt, range(40)))
    assert sorted(answers) == ["duplicate"] * 39 + ["once"]
    assert Queue("sms").count == 1


def test_threads_share_one_connection(conn: redis.Redis) -> None:
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda n: Queue("sms", conn).enqueue(basic.add, n, n), range(200)))
    assert len({job.id for job in jobs}) == 200
    assert sorted(job.args for job in Queue("sms").get_jobs(0, 200)) == [(n, n) for n in range(200)]


# -- many


def test_enqueue_many_keeps_order_and_options(bench: Bench) -> None:
    datas = [Queue.prepare_data(basic.noop, (n,), job_id=f"j{n:04}", priority=2 if n % 2 else 1) for n in range(1201)]
    with wire(bench.conn) as sent:
        jobs = bench.queue.enqueue_many(datas)
    assert sent.count("EVALSHA") == 9
    assert [job.id for job in jobs] == [f"j{n:04}" for n in range(1201)]
    assert drain(bench.hand) == [f"j{n:04}" for n in range(1, 1201, 2)] + [f"j{n:04}" for n in range(0, 1201, 2)]


def test_a_batch_is_all_or_nothing(conn: redis.Redis) -> None:
    Queue("sms").enqueue(basic.noop, job_id="taken")
    batch = [Queue.prepare_data(basic.noop, job_id=job_id) for job_id in ("new", "taken", "newer")]
    with pytest.raises(DuplicateJob):
        Queue("sms").enqueue_many(batch)
    assert Queue("sms").get_job_ids() == ["taken"]
    assert not Job.exists("new")
    with pytest.raises(ValueError, match="same job_id twice"):
        Queue("sms").enqueue_many([batch[0], batch[0]])
    assert Queue("sms").enqueue_many([]) == []
    assert Queue("sms").enqueue_many(iter(batch[:1]))[0].id == "new"


# -- looking


def test_counts_pages_and_membership(conn: redis.Redis) -> None:
    queue = Queue("sms")
    assert (queue.count, len(queue), queue.is_empty(), queue.get_job_ids(), queue.get_jobs()) == (0, 0, True, [], [])
    ids = [queue.enqueue(basic.noop, job_id=f"j{n}").id for n in range(5)]
    high = queue.enqueue(basic.noop, priority=PriorityQueue.PRIORITY_HIGH)
    assert (queue.count, queue.is_empty()) == (6, False)
    assert queue.get_job_ids() == [high.id, *ids]
    assert queue.get_job_ids(1, 2) == ids[:2]
    assert queue.get_job_ids(5, 100) == ids[4:]
    assert [job.id for job in queue.get_jobs(0, 2)] == [high.id, ids[0]]
    assert [Job.fetch(job_id).get_position() for job_id in (high.id, *ids)] == [0, 1, 2, 3, 4, 5]
    assert queue.fetch_job("j0") == Job.fetch("j0")
    assert Queue("email").fetch_job("j0") is None
    assert queue.fetch_job("nobody") is None
    Queue("scheduler").enqueue(basic.noop)
    assert [found.name for found in Queue.all()] == ["scheduler", "sms"]
    assert queue == PriorityQueue("sms")
    assert len({queue, PriorityQueue("sms"), Queue("email")}) == 2


@pytest.mark.parametrize("name", ["sms", "scheduler"])
def test_emptying_a_queue(conn: redis.Redis, name: str) -> None:
    jobs = Queue(name).enqueue_many([Queue.prepare_data(basic.noop) for _ in range(1201)])
    bystander = Queue("email").enqueue(basic.noop)
    running = Bench(conn, name).hand.claim(1)
    assert Queue(name).empty() == 1200
    assert Queue(name).count == 0
    assert Queue(name).empty() == 0
    left = [job.id for job in jobs if Job.exists(job.id)]
    assert left == [claimed.id for claimed in running]
    check_conservation(conn, [*left, bystander.id])


@pytest.mark.parametrize("name", ["failed", "_x", "", "a b", "a:b", "sms*", "x" * 129, None])
def test_names_no_queue_may_have(conn: redis.Redis, name: Any) -> None:
    with pytest.raises(InvalidName, match="queue name"):
        Queue(name)


def test_a_queue_follows_the_current_connection(conn: redis.Redis, redis_url: str) -> None:
    queue = Queue("sms")
    with Connection(redis_url.replace("db=0", "db=3")) as other:
        job = queue.enqueue(basic.noop)
        assert job.connection is other
        assert queue.count == 1
    assert queue.count == 0
    assert job.get_status() == "queued"
    with pytest.raises(Exception, match="no job"):
        Job.fetch(job.id)


def test_the_default_timeout_of_a_queue(conn: redis.Redis) -> None:
    queue = Queue("sms", default_timeout="2m")
    assert queue.enqueue(basic.noop).timeout == 120
    assert queue.enqueue(basic.noop, job_timeout=-1, priority=0).timeout == -1
    assert queue.enqueue(basic.noop, priority=0, result_ttl=0).priority == 0
    assert Queue("sms").enqueue(basic.noop).timeout == 180
    with pytest.raises(ValueError, match="job_timeout"):
        Queue("sms", default_timeout="long").enqueue(basic.noop)
