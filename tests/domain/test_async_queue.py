"""AsyncQueue: what `Queue` writes, says and raises, from a coroutine."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme
from redis import asyncio as aredis
from redis import exceptions as errors
from redis.connection import parse_url

from fusion import AsyncQueue, Job, Queue, Retry, StoreUnavailable
from fusion.enqueue.build import JobData
from fusion.exceptions import ConfigurationError, DuplicateJob, InvalidName, PayloadTooLarge, SerializationError
from fusion.settings import Settings, use_settings
from fusion.store.client.async_connections import loops_client, twin
from fusion.store.client.connections import connect
from tests.domain.test_queue import WRONG_CALLS, WRONG_OPTIONS
from tests.faults.rig.proxy import LOSE, FaultProxy
from tests.jobs import basic
from tests.kit.guarded import as_admin
from tests.kit.private_redis import PrivateRedis
from tests.kit.servers import TLSFront
from tests.kit.waiting import eventually

#: What differs between two enqueues of the same: when they were, and what tells them apart.
CLOCKS = {b"at", b"updated", b"created_at", b"enqueued_at", b"expires_at", b"nonce", b"epoch", b"due"}
WHEN = datetime.now(timezone.utc) + timedelta(days=1)

#: The methods of both queues, with what they are given.
CALLS: list[Callable[[Any], Any]] = [
    lambda queue: queue.enqueue(basic.add, 1, b=2, job_id="plain"),
    lambda queue: queue.enqueue(
        "tests.jobs.basic.noop",
        {"callback": 1, "callback_url": "https://example.org/x"},
        job_id="all",
        priority=2,
        job_timeout="1m",
        result_ttl=9,
        failure_ttl="1d",
        ttl="1h",
        at_front=True,
        retry=Retry(2, interval=[1, 2]),
        on_success="tests.jobs.basic.remember",
        on_failure=basic.complain,
        meta={"a": [1]},
        description="ä",
        log_tag="SMS_OTP",
        success_task_handler="https://example.org/ok",
        on_lost="fail",
    ),
    lambda queue: queue.enqueue_at(WHEN, basic.noop, job_id="at", priority=0),
    lambda queue: queue.enqueue_at(WHEN - timedelta(days=2), basic.noop, job_id="past"),
    lambda queue: queue.enqueue_in(timedelta(hours=1), basic.noop, job_id="in", at_front=True, ttl=5),
    lambda queue: queue.enqueue_call(basic.add, (1,), {"priority": 3}, timeout="2m", job_id="call", priority=0),
    lambda queue: queue.enqueue_many(
        [queue.prepare_data(basic.noop, (n,), job_id=f"m{n:04}", priority=n % 3) for n in range(520)]
    ),
    lambda queue: queue.enqueue_many(
        iter([queue.prepare_data(basic.noop, ("x" * 400_000,), job_id=f"big{n}") for n in range(6)])
    ),
    lambda queue: queue.enqueue_many([]),
]


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


def enqueued(call: Callable[[AsyncQueue], Awaitable[Any]], queue: str = "sms", **given: Any) -> Any:
    """What `call` returns on a loop of its own."""

    async def inside() -> Any:
        async with AsyncQueue(queue, **given) as made:
            return await call(made)

    return run(inside())


class _Instant(float):
    """Seconds or milliseconds since 1970, of a call: equal to another's of the same minute or so."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < (60_000 if self > 1e11 else 60)

    __hash__ = None  # type: ignore[assignment]


def written(conn: redis.Redis) -> dict[str, Any]:
    """Every key with its contents, in the order in which Redis has them; of times in hashes and events only that they are there."""

    def fields(pairs: list[bytes]) -> list[tuple[bytes, bytes]]:
        return [(n, b"" if n in CLOCKS else v) for n, v in zip(pairs[::2], pairs[1::2], strict=True)]

    def soon(pairs: list[tuple[bytes, float]]) -> list[tuple[bytes, float]]:
        return [(member, _Instant(score) if score > 1e9 else score) for member, score in pairs]

    read: dict[bytes, Callable[[str], Any]] = {
        b"string": conn.get,
        b"hash": lambda key: fields(_flat(conn.hgetall(key))),
        b"set": conn.smembers,
        b"list": lambda key: conn.lrange(key, 0, -1),
        b"zset": lambda key: soon(conn.zrange(key, 0, -1, withscores=True)),
        b"stream": lambda key: [fields(_flat(entry)) for _, entry in conn.xrange(key)],
    }
    return {key.decode(): (read[conn.type(key)](key.decode()), conn.ttl(key) >= 0) for key in sorted(conn.scan_iter())}


def _flat(found: dict[bytes, bytes]) -> list[bytes]:
    return [part for pair in found.items() for part in pair]


def test_the_same_calls_write_the_same(conn: redis.Redis) -> None:
    expected_jobs = [call(Queue("sms", conn)) for call in CALLS]
    expected = written(conn)
    conn.flushall()

    async def all_calls() -> list[Any]:
        async with AsyncQueue("sms") as queue:
            return [await call(queue) for call in CALLS]

    jobs = run(all_calls())
    assert written(conn) == expected
    assert jobs == expected_jobs
    for mine, theirs in zip(jobs, expected_jobs, strict=True):
        for job, other in zip(mine, theirs, strict=True) if isinstance(mine, list) else [(mine, theirs)]:
            assert job.get_status(refresh=False) == other.get_status(refresh=False)
            assert (job.args, job.kwargs, job.priority, job.timeout, job.origin, job.meta) == (
                other.args,
                other.kwargs,
                other.priority,
                other.timeout,
                other.origin,
                other.meta,
            )
            again = Job.fetch(job.id, conn)
            assert (job.created_at, job.enqueued_at) == (again.created_at, again.enqueued_at)


def test_each_enqueue_is_one_command(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    Queue("sms", conn).enqueue(basic.noop)
    sent = []
    kind = aredis.connection.AbstractConnection
    original = kind.send_packed_command

    async def send(self: Any, command: Any, check_health: bool = True) -> None:
        sent.append(b"".join(command).split(b"\r\n")[2])
        await original(self, command, check_health)

    async def some(queue: AsyncQueue) -> None:
        await queue.enqueue(basic.noop)
        sent.clear()
        monkeypatch.setattr(kind, "send_packed_command", send)
        await queue.enqueue(basic.noop)
        await queue.enqueue_many([queue.prepare_data(basic.noop) for _ in range(301)])
        conn.script_flush()
        await queue.enqueue(basic.noop)

    enqueued(some)
    assert sent == [b"EVALSHA"] * 5 + [b"EVAL"]


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS, ids=[str(row[0])[:40] for row in WRONG_OPTIONS])
def test_a_wrong_option_is_named_and_nothing_is_written(conn: redis.Redis, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        enqueued(lambda queue: queue.enqueue(basic.noop, **options))
    assert message in str(caught.value)
    assert conn.dbsize() == 0


@pytest.mark.parametrize(("func", "args", "kwargs", "error", "message"), WRONG_CALLS, ids=[row[4] for row in WRONG_CALLS])
def test_an_unserializable_argument_is_named(
    conn: redis.Redis, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises((SerializationError, PayloadTooLarge)) as caught:
        enqueued(lambda queue: queue.enqueue(func, *args, **kwargs))
    assert isinstance(caught.value, error)
    assert message in str(caught.value)
    assert conn.dbsize() == 0


def test_an_async_queue_refuses_duplicates(conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(basic.noop, job_id="taken")
    with pytest.raises(DuplicateJob, match="is queued"):
        enqueued(lambda queue: queue.enqueue(basic.noop, job_id="taken"))
    with pytest.raises(ValueError, match="the same job_id twice"):
        enqueued(lambda queue: queue.enqueue_many([queue.prepare_data(basic.noop, job_id="j")] * 2))
    with pytest.raises(TypeError, match="needs a time, got None"):
        enqueued(lambda queue: queue.enqueue_at(None, basic.noop))
    with pytest.raises(InvalidName):
        AsyncQueue("a b")
    with pytest.raises(TypeError, match=r"use redis\.asyncio\.Redis"):
        AsyncQueue("sms", conn)  # type: ignore[arg-type]


def test_a_job_it_returned_asks_redis_nothing(conn: redis.Redis) -> None:
    job = enqueued(lambda queue: queue.enqueue(basic.noop))
    assert job.get_status(refresh=False) == "queued"
    for call in (job.get_status, job.refresh, job.cancel, job.delete, lambda: job.result):
        with pytest.raises(RuntimeError, match=r"asyncio\.to_thread\(Job\.fetch"):
            call()
    assert Job.fetch(job.id).get_status() == "queued"


def test_the_queues_of_a_loop_share_connections_and_loops_do_not(conn: redis.Redis) -> None:
    async def inside() -> aredis.Redis:
        first, second = AsyncQueue("sms"), AsyncQueue("email")
        await asyncio.gather(*(queue.enqueue(basic.noop) for queue in (first, second) for _ in range(20)))
        client = loops_client()
        assert client is loops_client()
        await first.close()
        await second.enqueue(basic.noop)
        await second.close()
        return client

    def connections() -> int:
        return sum(
            client["cmd"] in ("evalsha", "eval") and client["id"] != str(conn.client_id()) for client in conn.client_list()
        )

    before = connections()
    assert run(inside()) is not run(inside())
    assert (Queue("sms", conn).count, Queue("email", conn).count) == (40, 42)
    eventually(lambda: connections() <= before, why="all are closed")


def test_a_connection_that_is_given_stays_the_callers(conn: redis.Redis, redis_url: str) -> None:
    async def inside() -> int:
        client = twin(connect(redis_url.replace("db=0", "db=5")))
        async with AsyncQueue("sms", client, default_timeout="1m") as queue:
            job = await queue.enqueue(basic.noop)
        assert job.timeout == 60
        there = await client.zcard("rq:queue:sms")
        await client.aclose()
        return int(there)

    assert run(inside()) == 1
    assert Queue("sms").count == 0


@pytest.mark.long
def test_an_async_queue_raises_the_errors_of_a_queue(private_redis: PrivateRedis) -> None:
    for url in ("redis://127.0.0.1:1", "rediss://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/mymaster"):
        found = []
        use_settings(Settings.load(redis_url=url))
        for call in (lambda: Queue("q").enqueue(basic.noop), lambda: enqueued(lambda queue: queue.enqueue(basic.noop), "q")):
            with pytest.raises(StoreUnavailable) as caught:
                call()
            what = str(caught.value).partition(" can't be reached: ")[0]
            found.append((type(caught.value), what, caught.value.nothing_written, len(caught.value.job_ids)))
        assert found[0] == found[1]
        assert found[0][2:] == (True, 1)
    use_settings(Settings.load(redis_url=private_redis.url.replace("unix://", "unix://nobody:x@")))
    with pytest.raises(ConfigurationError, match="refused the login"):
        enqueued(lambda queue: queue.enqueue(basic.noop))


def test_an_enqueue_that_got_no_answer_is_one_job_when_repeated(conn: redis.Redis, redis_url: str) -> None:
    """Its answers are lost, after the server has done what was asked."""
    proxy = FaultProxy(redis_url, conn)
    use_settings(Settings.load(redis_url=proxy.url))

    async def inside() -> None:
        async with AsyncQueue("sms") as queue:
            await queue.enqueue(basic.noop)  # the script is known
            Queue("sms", conn).empty()
            proxy.on("enqueue", LOSE, times=4)
            with pytest.raises(StoreUnavailable) as caught:
                await queue.enqueue(basic.add, 1, 2, job_id="j")
            assert not caught.value.nothing_written
            assert queue_ids() == ["j"]
            assert [(await caught.value.repeat()).id, (await caught.value.repeat()).id] == ["j", "j"]
            proxy.on("enqueue", LOSE, nth=2, times=4)
            datas = [queue.prepare_data(basic.noop) for _ in range(1200)]
            with pytest.raises(StoreUnavailable) as caught:
                await queue.enqueue_many(datas)
            assert [job.id for job in await caught.value.repeat()] == [data.new.id for data in datas]
            assert queue_ids() == ["j", *(data.new.id for data in datas)]

    def queue_ids() -> list[str]:
        return Queue("sms", conn).get_job_ids(0, 2000)

    try:
        run(inside())
    finally:
        proxy.close()


def test_a_cancelled_wait_leaves_one_job_when_its_data_are_enqueued_again(private_redis: PrivateRedis) -> None:
    use_settings(Settings.load(redis_url=private_redis.url))

    async def inside(data: JobData) -> None:
        async with AsyncQueue("sms") as queue:
            await queue.enqueue(basic.noop, job_id="first")
            private_redis.pause()
            try:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(queue.enqueue_many([data]), 0.2)
            finally:
                private_redis.resume()
            (job,) = await queue.enqueue_many([data])
            assert job.id == data.new.id

    run(inside(Queue.prepare_data(basic.noop)))
    assert Queue("sms", private_redis.conn).count == 2


def test_over_tls_and_with_a_password_file(redis_url: str, conn: redis.Redis, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    (tmp_path / "password").write_text("secret\n")
    target = parse_url(as_admin(redis_url))
    conn.execute_command("ACL", "SETUSER", "tls", "on", ">secret", "~*", "&*", "+@all")
    front = TLSFront(context, str(target["path"]))
    try:
        given = {"redis_ssl_ca_certs": str(tmp_path / "ca.pem"), "redis_password_file": str(tmp_path / "password")}
        use_settings(Settings.load(redis_url=f"rediss://localhost:{front.port}/0", redis_username="tls", **given))
        assert enqueued(lambda queue: queue.enqueue(basic.noop, "x" * 200_000, job_id="j")).id == "j"
        use_settings(Settings.load(redis_url=f"rediss://localhost:{front.port}/0", redis_password="secret", redis_username="tls"))
        with pytest.raises(ConfigurationError, match="redis_ssl_ca_certs"):
            enqueued(lambda queue: queue.enqueue(basic.noop))
    finally:
        front.close()
        conn.execute_command("ACL", "DELUSER", "tls")
    assert Queue("sms", conn).get_job_ids() == ["j"]


def test_fusion_alone_imports_neither_asyncio_nor_redis() -> None:
    code = "import sys, fusion; fusion.StoreUnavailable; print({'asyncio', 'redis'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    code = (
        "import sys, fusion; fusion.Queue; print([name for name in sys.modules if name.startswith('fusion') and 'async' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_loops_client_sends_whatever_redis_pys_own_does(redis_url: str) -> None:
    async def main() -> None:
        client = twin(connect(redis_url))
        for value in ("", "Grüße ☃", b"\x00\xff\r\n", 7, -1, 2.5, "x" * 100_000):
            sent = value if isinstance(value, bytes) else str(value).encode()
            assert await client.execute_command("EVAL", "return ARGV[1]", 0, value) == sent
        assert await client.client_id() == await client.execute_command("CLIENT ID")
        with pytest.raises(errors.DataError):
            await client.execute_command("EVAL", "return ARGV[1]", 0, None)
        await client.aclose()

    asyncio.run(main())
