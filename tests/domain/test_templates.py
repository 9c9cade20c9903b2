"""Templates of enqueues: calls by one write the same records as calls made the general way, and each reason to make one anew is seen."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
import redis

from fusion import AsyncQueue, Callback, Job, Queue, Retry, Secret
from fusion.decorators import job as task
from fusion.enqueue import template
from fusion.enqueue.call import called
from fusion.enqueue.sending import QueueSteps
from fusion.enqueue.template import Template, templates_of
from fusion.exceptions import DuplicateJob, OptionError
from fusion.kernel import failpoints
from fusion.middleware import Enqueueing, ProducerMiddleware, register, unregister
from fusion.settings import Settings, use_settings
from fusion.store.access import broker_of
from fusion.store.client.connections import connect
from tests.jobs import basic
from tests.kit.hands import Hand

SECRET = secrets.token_urlsafe(32)
PATH = "tests.jobs.basic.noop"


@task("sms", timeout="5m", priority="high")
def marked(*args: Any, **kwargs: Any) -> None:
    return None


@task("sms", concurrency_key="k", max_concurrent=3)
def keyed(*args: Any, **kwargs: Any) -> None:
    return None


@task("sms", fair_key=lambda *args, **kwargs: f"c{len(args)}")
def fair(*args: Any, **kwargs: Any) -> None:
    return None


@task("sms", concurrency_key="d", max_concurrent=1, on_conflict="discard")
def discarding(*args: Any, **kwargs: Any) -> None:
    return None


@task("sms", unique=True)
def single(*args: Any, **kwargs: Any) -> None:
    return None


def record(conn: redis.Redis, job: Job, queue: str = "sms") -> dict[str, Any]:
    """What Redis and the returned job hold of a job, but for what differs between two calls that say the same."""
    stored: dict[Any, Any] = conn.hgetall(f"rq:job:{job.id}")  # type: ignore[assignment]
    of_call = {name: value for name, value in job._fields.items() if name not in ("created_at", "enqueued_at")}
    score = conn.zscore(f"rq:pq:{queue}", job.id)
    for name in (b"created_at", b"enqueued_at", b"seq", b"nonce", b"expires_at", b"arrival"):
        stored.pop(name, None)
    return {
        "stored": stored,
        "job": {name: str(value) if isinstance(value, int) else value for name, value in of_call.items()},
        "times": job.created_at == job.enqueued_at == Job.fetch(job.id, conn).created_at,
        "priority": None if score is None else int(score),
        "expires": conn.ttl(f"rq:job:{job.id}") >= 0,
    }


# -- the same records


class Chance(random.Random):
    """Random calls."""

    def value(self, depth: int = 0) -> Any:
        kinds = [
            lambda: None,
            lambda: self.random() < 0.5,
            lambda: self.randrange(-(10**12), 10**12),
            lambda: self.uniform(-1e6, 1e6),
            lambda: "".join(self.choices('abcäöü☃"\\\n\r\u2028 😀', k=self.randrange(12))),
            lambda: "x" * self.choice((1, 400, 500, 520, 3000)),
            lambda: secrets.token_hex(self.choice((4, 240, 256, 300))),
            lambda: "\ud800",
            lambda: self.randbytes(self.randrange(20)),
            lambda: datetime(2026, 1, self.randrange(1, 28), tzinfo=timezone.utc),
            lambda: Decimal(self.randrange(1000)) / 8,
            lambda: Secret("hush"),
            lambda: float("nan"),
            lambda: object(),
        ]
        if depth < 3:
            kinds += [
                lambda: [self.value(depth + 1) for _ in range(self.randrange(4))],
                lambda: tuple(self.value(depth + 1) for _ in range(self.randrange(3))),
                lambda: {str(n): self.value(depth + 1) for n in range(self.randrange(4))},
                lambda: {"callback": self.choice((0, 1, "1")), "callback_url": "https://hooks.example.com/x"},
                lambda: {"callback": 1, "callback_url": "ftp://no"},
                lambda: {7: "a key that is no text", "__fusion__": 1},
            ]
        return self.choice(kinds if self.random() < 0.4 else kinds[:6])()

    def options(self) -> dict[str, Any]:
        known: dict[str, Callable[[], Any]] = {
            "priority": lambda: self.choice((0, 1, 2, 255, "high", "LOW", True, 1.0, -1, None)),
            "job_timeout": lambda: self.choice((30, "5m", -1, 180, 180.0, 2.5, "x", None)),
            "result_ttl": lambda: self.choice((0, 500, -1, "1h")),
            "ttl": lambda: self.choice((60, "2h", 0, 1e12)),
            "failure_ttl": lambda: self.choice((60, "1d")),
            "log_tag": lambda: self.choice(("SMS_OTP", "ü")),
            "on_lost": lambda: self.choice(("fail", "requeue", "what")),
            "isolate": lambda: self.choice((True, False, 1)),
            "at_front": lambda: self.choice((True, False)),
            "description": lambda: self.choice(("of one call", "", PATH, "ü\ud800", self.value(), None)),
            "meta": lambda: self.choice(
                ({"n": self.randrange(3)}, {}, None, {"a": self.value()}, {"long": "m" * 900}, [("a", 1)], 7)
            ),
            "job_id": lambda: self.choice((secrets.token_hex(self.choice((1, 11, 60))), "", "a b", "cb_x", None, 7)),
            "on_success": lambda: self.choice((basic.noop, PATH, Callback(PATH, 5), "", str.upper, None)),
            "on_failure": lambda: self.choice((basic.noop, Callback(basic.noop))),
            "retry": lambda: self.choice((Retry(2), Retry(max=2, interval=[1, 2.5], on=OSError), Retry(within="2h"), "x", None)),
            "concurrency_key": lambda: self.choice(("a", "b")),
            "fair_key": lambda: self.choice(("a", "b", "with a space")),
            "max_queue_length": lambda: 100_000,
            "enqueue_in": lambda: self.choice((0, 3600)),
            "prioriti": lambda: 1,
            "repeat": lambda: None,
            "timeout": lambda: None,
        }
        found = {name: known[name]() for name in self.sample(sorted(known), self.choice((0, 0, 0, 1, 1, 2)))}
        if self.random() < 0.2:
            found |= {"meta": {"a": self.value(3)}, "description": "of one call"}
        return found


FUNCTIONS: tuple[Any, ...] = (basic.noop, PATH, "no.such.module.func", marked, keyed, fair, basic.echo, "tasks.grüße.send")


def outcome(call: Callable[[], Job], conn: redis.Redis) -> Any:
    try:
        return record(conn, call())
    except (ValueError, TypeError, RuntimeError) as error:
        return type(error), str(error).split(" at 0x")[0]


@pytest.mark.filterwarnings("ignore:timeout= goes to the task")
@pytest.mark.parametrize("seed", range(4))
def test_random_calls_write_the_same_records_by_templates_and_without(
    conn: redis.Redis, monkeypatch: pytest.MonkeyPatch, general: list[str], seed: int
) -> None:
    chance, made = Chance(seed), 0
    queues = [Queue("sms", conn), Queue("sms", conn, default_timeout=77), Queue("sms", conn, default_timeout="5m")]
    for _ in range(150):
        queue, func = chance.choice(queues), chance.choice(FUNCTIONS)
        args = tuple(chance.value() for _ in range(chance.choice((0, 0, 1, 2))))
        kwargs = {name: chance.value() for name in chance.sample(("a", "payload", "value", "to"), chance.choice((0, 0, 1, 2)))}
        given = {**kwargs, **chance.options()}

        def without(queue: Queue = queue, func: Any = func, args: Any = args, given: Mapping[str, Any] = given) -> Job:
            job: Job = queue._run(queue._one(*called(func, args, dict(given), queue._defaults)))
            return job

        expected = outcome(without, conn)
        for _ in range(2):  # the first of them may make the template
            before = len(general)
            conn.flushall()
            assert outcome(lambda: queue.enqueue(func, *args, **given), conn) == expected, (func, args, given)  # noqa: B023
        made += len(general) == before and not isinstance(expected, tuple)
        conn.flushall()
    assert made > 30, "templates were hardly used"


def test_no_value_of_a_call_stays(conn: redis.Redis) -> None:
    queue = Queue("sms", conn)
    for n in range(2):
        own = {"meta": {"of": "first-meta"}, "description": "first-description", "job_id": f"first-id{n}"}
        job = queue.enqueue(basic.noop, "first-argument", key="first-keyword", ttl=60, **own)
        job = queue.enqueue(basic.noop, "first-argument", key="first-keyword", ttl=60)
    found = [one for one in templates_of(conn)._kept.values() if one is not None]
    assert found

    def held(value: Any, seen: set[int]) -> Iterator[str]:
        if id(value) in seen or isinstance(value, (redis.Redis, type)) or callable(value):
            return
        seen.add(id(value))
        slots = getattr(type(value), "__slots__", ()) if type(value).__module__.startswith("fusion.") else ()
        parts = [getattr(value, name) for name in slots if hasattr(value, name)]
        if isinstance(value, Mapping):
            parts += [*value, *value.values()]
        elif isinstance(value, (tuple, list, set, frozenset)):
            parts += value
        yield repr(value)
        for part in parts:
            yield from held(part, seen)

    texts = " ".join(text for one in found for text in held(one, set()))
    assert "rq:queues" in texts
    assert "first-" not in texts
    assert job.id not in texts


# -- when a template is made anew


def test_the_second_call_is_made_by_the_template_of_the_first(conn: redis.Redis, general: list[str]) -> None:
    queue = Queue("sms", conn)
    for n in range(5):
        queue.enqueue(basic.noop, n)
    assert len(general) == 1
    for n in range(5):
        queue.enqueue(basic.noop, n, priority="high")
        queue.enqueue(PATH, n)
        Queue("other", conn).enqueue(basic.noop, n)
    assert len(general) == 4
    assert queue.count == 15


def test_a_payload_names_its_callback_after_others_without(conn: redis.Redis) -> None:
    for n in range(2):
        job = Queue("sms", conn).enqueue(basic.noop, payload={"callback": n, "callback_url": "https://hooks.example.com/x"})
        assert (conn.hget(f"rq:job:{job.id}", "callback_url") is None) == (n == 0)


@pytest.mark.parametrize("way", ["options", "delay", "enqueue_call", "async"])
def test_each_way_to_enqueue_has_templates(conn: redis.Redis, general: list[str], way: str) -> None:
    queue = Queue("sms", conn)
    bound = queue.options(priority="high", ttl=60)
    if way == "async":

        async def enqueue() -> list[Job]:
            own = AsyncQueue("sms")
            async with own:
                return [await own.enqueue(basic.noop, n, priority="high", ttl=60) for n in range(4)]

        jobs = asyncio.run(enqueue())
    else:
        calls: dict[str, Callable[[int], Job]] = {
            "options": lambda n: bound.enqueue(basic.noop, n),
            "delay": lambda n: marked.delay(n),
            "enqueue_call": lambda n: queue.enqueue_call(basic.noop, [n], priority="high", ttl=60),
        }
        jobs = [calls[way](n) for n in range(4)]
    assert len(general) == 1
    assert [Job.fetch(job.id, conn).args for job in jobs] == [(n,) for n in range(4)]
    assert {Job.fetch(job.id, conn).priority for job in jobs} == {2}
    records = [record(conn, job) for job in jobs]
    for one in records:
        del one["stored"][b"data"], one["job"]["data"]
    assert all(one == records[0] for one in records)


def test_a_policy_of_retries_is_what_it_is_at_each_call(conn: redis.Redis, general: list[str]) -> None:
    queue, policy = Queue("sms", conn), Retry(max=2)
    jobs = [queue.enqueue(basic.noop, retry=policy) for _ in range(3)] + [queue.enqueue(basic.noop, retry=Retry(2))]
    assert len(general) == 1
    policy.intervals.append(30)
    jobs.append(queue.enqueue(basic.noop, retry=policy))
    assert [conn.hget(f"rq:job:{job.id}", "retry") for job in jobs] == [b'{"max": 2}'] * 4 + [b'{"max": 2, "interval": [0, 30]}']


def test_what_is_a_calls_own_differs_by_one_template(conn: redis.Redis, general: list[str]) -> None:
    queue = Queue("sms", conn)
    for n in range(4):
        job = queue.enqueue(basic.noop, n, meta={"n": n}, description=f"call {n}", job_id=f"id-{n}", on_failure=basic.noop)
        stored = Job.fetch(f"id-{n}", conn)
        for one in (job, stored):
            assert (one.id, one.args, one.meta, one.description) == (f"id-{n}", (n,), {"n": n}, f"call {n}")
    assert len(general) == 1
    with pytest.raises(DuplicateJob, match="id-3"):
        queue.enqueue(basic.noop, 9, meta={"n": 9}, description="call 9", job_id="id-3", on_failure=basic.noop)
    assert Job.fetch("id-3", conn).args == (3,)
    assert queue.count == 4

    async def awaited() -> list[Job]:
        own = AsyncQueue("sms")
        async with own:
            return [await own.enqueue(basic.noop, meta={"n": n}, job_id=f"async-{n}") for n in range(3)]

    assert [(job.id, job.meta) for job in asyncio.run(awaited())] == [(f"async-{n}", {"n": n}) for n in range(3)]
    assert [Job.fetch(f"async-{n}", conn).meta for n in range(3)] == [{"n": n} for n in range(3)]
    assert len(general) == 2


@pytest.mark.parametrize("way", ["options", "delay"])
def test_options_for_many_calls_are_what_they_are_at_each(conn: redis.Redis, general: list[str], way: str) -> None:
    meta, policy = {"n": 0}, Retry(max=2)
    bound = Queue("sms", conn).options(meta=meta, retry=policy)
    delayed = task("sms", connection=conn, meta=meta, retry=policy)(basic.echo)
    jobs = []
    for n in range(3):
        meta["n"] = n
        if n == 2:
            policy.intervals.append(30)
        jobs.append(bound.enqueue(basic.noop) if way == "options" else delayed.delay(1))
    assert [Job.fetch(job.id, conn).meta for job in jobs] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [conn.hget(f"rq:job:{job.id}", "retry") for job in jobs] == [b'{"max": 2}'] * 2 + [b'{"max": 2, "interval": [0, 30]}']
    assert len(general) == 2


def test_too_much_for_the_options_of_a_job_is_refused_by_templates_too(conn: redis.Redis, redis_url: str) -> None:
    use_settings(Settings.load(redis_url=redis_url, max_payload=4000))
    queue = Queue("sms", conn)
    for size in (10, 10, 600, 900, 3900):
        queue.enqueue(basic.noop, description="d" * size)
    for more in ({"description": "d" * 4001}, {"description": "ü" * 2100}):
        with pytest.raises(ValueError, match="max_payload"):
            queue.enqueue(basic.noop, **more)
    assert queue.count == 5


def test_after_a_change_of_the_settings(conn: redis.Redis, redis_url: str, general: list[str]) -> None:
    queue = Queue("sms", conn)
    queue.enqueue(basic.noop)
    use_settings(Settings.load(redis_url=redis_url, job_timeout=33))
    jobs = [queue.enqueue(basic.noop) for _ in range(2)]
    assert len(general) == 2
    assert [Job.fetch(job.id, conn).timeout for job in jobs] == [33, 33]
    use_settings(Settings.load(redis_url=redis_url, max_payload=20_000))
    assert queue.enqueue(basic.noop, secrets.token_hex(9000)).args
    with pytest.raises(ValueError, match="max_payload"):
        queue.enqueue(basic.noop, secrets.token_hex(11_000))


def test_settings_that_change_amid_the_first_call(conn: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another thread: what was built by the old ones is no template under the new ones."""
    ordinary = QueueSteps._one

    def one(self: QueueSteps, data: Any, terms: Any) -> Any:
        use_settings(Settings.load(redis_url=redis_url, job_timeout=44))
        return ordinary(self, data, terms)

    queue = Queue("sms", conn)
    with monkeypatch.context() as amid:
        amid.setattr(QueueSteps, "_one", one)
        queue.enqueue(basic.noop)
    assert [Job.fetch(queue.enqueue(basic.noop).id, conn).timeout for _ in range(3)] == [44] * 3


def test_signed_jobs_are_signed_by_the_key_of_their_time(conn: redis.Redis, redis_url: str, general: list[str]) -> None:
    queue, signers = Queue("sms", conn), []
    queue.enqueue(basic.noop)
    for first, other in (("k1", "k2"), ("k2", "k1")):
        use_settings(Settings.load(redis_url=redis_url, secret_keys=(f"{first}:{SECRET}", f"{other}:{SECRET[::-1]}")))
        for n in range(2):
            signature = conn.hget(f"rq:job:{queue.enqueue(basic.noop, n).id}", "signature")
            assert signature is not None
            signers.append(signature.split(b".")[1])
    assert signers == [b"k1", b"k1", b"k2", b"k2"]
    assert len(general) == 5, "a signature is of one job"


def test_middleware_sees_the_next_call(conn: redis.Redis, general: list[str]) -> None:
    seen: list[str] = []

    class Notes(ProducerMiddleware):
        def before_enqueue(self, enqueueing: Enqueueing) -> None:
            seen.extend(out.id for out in enqueueing.jobs)

    queue = Queue("sms", conn)
    queue.enqueue(basic.noop)
    added = register(Notes())
    try:
        ids = [queue.enqueue(basic.noop).id for _ in range(3)]
    finally:
        unregister(added)
    assert seen == ids
    queue.enqueue(basic.noop)
    queue.enqueue(basic.noop)
    assert seen == ids
    assert len(general) == 5


def test_another_connection_has_its_own(redis_url: str, general: list[str]) -> None:
    with connect(redis_url) as one, connect(redis_url) as other:
        for _ in range(2):
            Queue("sms", one).enqueue(basic.noop)
            Queue("sms", other).enqueue(basic.noop)
        assert len(general) == 2
        assert templates_of(one) is not templates_of(other)


def test_a_client_that_is_not_fusions_makes_its_own_calls(redis_url: str, conn: redis.Redis, general: list[str]) -> None:
    sent = []

    class Theirs(redis.Redis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            sent.append(args[0])
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call, unused-ignore]

    with Theirs.from_url(redis_url, decode_responses=True) as client:
        jobs = [Queue("sms", client).enqueue(basic.noop, n) for n in range(3)]
    assert [Job.fetch(job.id, conn).args for job in jobs] == [(0,), (1,), (2,)]
    assert sent.count("EVALSHA") == 3
    assert len(general) == 1


def test_a_forked_process_makes_them_anew(conn: redis.Redis, general: list[str]) -> None:
    queue = Queue("sms", conn)
    queue.enqueue(basic.noop)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        ids = [queue.enqueue(basic.noop, "child").id for _ in range(3)]
        os.write(write, f"{len(general)} {len(set(ids))}".encode())
        os._exit(0)
    ids = [queue.enqueue(basic.noop, "parent").id for _ in range(3)]
    assert os.waitpid(pid, 0)[1] == 0
    assert os.read(read, 100) == b"2 3"
    assert len(general) == 1
    assert queue.count == 7
    assert all(Job.fetch(one, conn).args == ("parent",) for one in ids)


def test_a_function_that_changed(conn: redis.Redis, general: list[str]) -> None:
    def func(to: str) -> None: ...

    func.__module__, func.__qualname__ = "shop.jobs", "first"
    queue = Queue("sms", conn)
    for _ in range(2):
        assert queue.enqueue(func, "x").func_name == "shop.jobs.first"
    func.__qualname__ = "second"
    for _ in range(2):
        assert queue.enqueue(func, "x").func_name == "shop.jobs.second"
    task("sms", concurrency_key="k")(func)
    for _ in range(2):
        assert queue.enqueue(func, "x").concurrency_key == "k"
    assert len(general) == 3


def test_a_process_with_failpoints_has_none(conn: redis.Redis, general: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "armed", True)
    for _ in range(3):
        Queue("sms", conn).enqueue(basic.noop)
    assert len(general) == 3


def test_there_are_at_most_256_and_the_oldest_go(conn: redis.Redis, general: list[str]) -> None:
    queue = Queue("sms", conn)
    for n in range(template.MOST + 20):
        queue.enqueue(f"shop.jobs.task{n}")
    assert len(templates_of(conn)) == template.MOST == 256
    general.clear()
    queue.enqueue(f"shop.jobs.task{template.MOST + 19}")
    assert general == []
    queue.enqueue("shop.jobs.task0")
    assert general == ["shop.jobs.task0"]


@pytest.mark.parametrize("options", [{"concurrency_key": "a"}, {"enqueue_in": 1}, {"depends_on": "a"}], ids=str)
def test_options_that_say_more_than_one_field_make_none(conn: redis.Redis, options: dict[str, Any]) -> None:
    Queue("sms", conn).enqueue(basic.noop, job_id="a")
    Queue("sms", conn).enqueue(basic.noop, **options)
    assert len(templates_of(conn)) == 1


def test_a_job_that_is_canceled_as_it_comes(conn: redis.Redis, general: list[str]) -> None:
    hand = Hand(broker_of(conn), "sms")
    queue = Queue("sms", conn)
    queue.enqueue(discarding)
    assert len(hand.claim()) == 1
    jobs = [queue.enqueue(discarding) for _ in range(2)]
    assert len(general) == 1
    assert [job.get_status(refresh=False) for job in jobs] == ["canceled"] * 2
    assert [job.reason for job in jobs] == ["discarded"] * 2


def test_an_async_call_that_is_awaited_elsewhere(conn: redis.Redis, general: list[str]) -> None:
    """It is made on one event loop or on none, and awaited on another, which has a connection of its own."""
    bound = AsyncQueue("sms").options(ttl=60)

    async def awaited(call: Any) -> str:
        job = await call
        await AsyncQueue("sms").close()
        return str(job.id)

    async def some() -> list[str]:
        found = [await bound.enqueue(basic.noop) for _ in range(2)]
        with ThreadPoolExecutor() as thread:  # this loop waits, so it can't read an answer for the other one
            elsewhere = thread.submit(asyncio.run, awaited(bound.enqueue(basic.noop))).result(30)
        await AsyncQueue("sms").close()
        return [*(job.id for job in found), elsewhere]

    ids = [*asyncio.run(some()), asyncio.run(awaited(bound.enqueue(basic.noop)))]
    assert len(set(ids)) == Queue("sms", conn).count == 4
    assert len(general) == 2


@pytest.mark.parametrize(("given", "like"), [({"priority": 1}, {"priority": True}), ({"ttl": 60}, {"ttl": "x"})], ids=str)
def test_what_is_equal_and_not_the_same(conn: redis.Redis, given: dict[str, Any], like: dict[str, Any]) -> None:
    queue = Queue("sms", conn)
    for _ in range(2):
        queue.enqueue(basic.noop, **given)
    with pytest.raises(OptionError, match=next(iter(like))):
        queue.enqueue(basic.noop, **like)
    with pytest.raises(OptionError, match=next(iter(like))):
        queue.options(**like).enqueue(basic.noop)
    assert queue.count == 2


def test_one_of_a_kind_is_not_enqueued_twice(conn: redis.Redis) -> None:
    jobs = [single.delay(n) for n in (1, 1, 2, 2)]
    assert [job.duplicate_of is None for job in jobs] == [True, False, True, False]
    assert {type(one) for one in templates_of(Queue("sms").connection)._kept.values()} <= {type(None), Template}
