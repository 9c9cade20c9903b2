"""A call that an exception cuts short anywhere (a signal's handler, ^C, a cancelled task): the next call gets its own answer, and no
connection is lost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import redis
from redis import asyncio as aredis

from fusion import AsyncQueue, Queue
from fusion.exceptions import JobTimeoutException
from fusion.kernel.timeouts import run_with_timeout
from fusion.settings import Settings
from fusion.store.access import inspector_of
from fusion.store.client.async_connections import twin
from fusion.store.client.connections import connect
from fusion.store.redis_server.instance import EmbeddedRedis
from tests.jobs import basic
from tests.kit.servers import LateAnswers

#: Seconds by which answers are late: redis-py itself notices those that have arrived.
LATE = 0.004
#: Where redis-py has sent, sends, waits and reads; what it does with its pool before and after that is its own.
EXCHANGE = set(
    "_send_command_parse_response call_with_retry send_command send_packed_command pack_command pack_commands pack read_response"
    " parse_response _execute_pipeline".split()
)


class Struck(BaseException):
    pass


class Striking:
    """Inside, the `at`-th step of redis-py's clients and of Fusion's part of them raises `Struck`: a line, or a function entered."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __enter__(self) -> Striking:
        gc.disable()  # Python 3.11 crashes when it collects amid the start of a generator that is traced
        sys.settrace(self._call)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)
        gc.enable()

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        name = frame.f_globals.get("__name__", "")
        theirs = name.startswith("redis.") and frame.f_code.co_name in EXCHANGE
        ours = name.startswith(("fusion.store.", "fusion.queue")) and name != "fusion.store.client.sockets"
        if not (theirs or ours):
            return None
        entered = frame.f_lineno

        def step(frame: FrameType, event: str, arg: object) -> Any:
            if event == "line" and frame.f_lineno != entered:
                self._strike()
            return step

        self._strike()
        return step

    def _strike(self) -> None:
        if sys.exception() is None:
            self.left -= 1
            if self.left == 0:
                raise Struck


@pytest.fixture
def late(redis_server: EmbeddedRedis, conn: redis.Redis) -> Iterator[LateAnswers]:
    proxy = LateAnswers(str(redis_server.home / "redis.sock"), LATE)
    yield proxy
    proxy.close()


def check_own_answers(client: redis.Redis, conn: redis.Redis, mark: str) -> None:
    """Several, as an answer that nobody awaited may be for the one after the next."""
    for n in range(2):
        conn.hset(f"rq:job:{mark}-{n}", "id", mark)
        assert inspector_of(client).job(f"{mark}-{n}") == {"id": mark.encode()}, mark


async def check_own_answer(client: aredis.Redis, conn: redis.Redis, mark: str) -> None:
    conn.hset(f"rq:job:{mark}", "mark", mark)
    assert await client.execute_command("HGET", f"rq:job:{mark}", "mark") == mark.encode()


def ours(url: str) -> redis.Redis:
    return connect(Settings.load(redis_url=url))


CLIENTS: dict[str, Callable[[str], redis.Redis]] = {
    "ours": ours,
    "theirs": redis.Redis.from_url,
    "theirs, RESP3": lambda url: redis.Redis.from_url(url, protocol=3),
    "one connection": lambda url: redis.Redis.from_url(url, single_connection_client=True),
    "blocking pool": lambda url: redis.Redis(connection_pool=redis.BlockingConnectionPool.from_url(url, max_connections=2)),
}


def enqueue(client: redis.Redis) -> None:
    Queue("q", client).enqueue(basic.noop)


def enqueue_many(client: redis.Redis) -> None:
    datas = [Queue.prepare_data(basic.noop, [n]) for n in range(3)]
    Queue("q", client).enqueue_many(datas)


def look(client: redis.Redis) -> None:
    inspector_of(client).now()
    inspector_of(client).count("q")


@pytest.mark.long
@pytest.mark.parametrize("call", [enqueue, enqueue_many, look], ids=lambda call: call.__name__)
@pytest.mark.parametrize("kind", CLIENTS)
def test_whatever_cuts_a_call_short_the_next_one_gets_its_own_answer(
    late: LateAnswers, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch, kind: str, call: Callable[[redis.Redis], None]
) -> None:
    monkeypatch.setattr("fusion.kernel.defaults.ENQUEUE_CHUNK", 1)
    client = CLIENTS[kind](late.url)
    call(client)  # scripts are known, a connection is there
    before = len(conn.client_list())
    at, struck, stride = 0, True, 1 if kind == "ours" else 3
    while struck:
        at, struck = at + stride, False
        try:
            with Striking(at):
                call(client)
        except Struck:
            struck = True
        check_own_answers(client, conn, f"after-{at}")
    assert at > 20, "nothing was struck"
    assert len(conn.client_list()) <= before + 1
    client.close()


class Interrupted(Exception):
    pass


def test_what_the_callers_own_data_raise_amid_a_call(
    late: LateAnswers, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary error leaves the chunks before it accepted; one that must not be held up leaves it open."""
    monkeypatch.setattr("fusion.kernel.defaults.ENQUEUE_CHUNK", 1)
    client = ours(late.url)

    def datas(error: BaseException) -> Iterator[Any]:
        yield Queue.prepare_data(basic.noop, job_id=f"{type(error).__name__}-0")
        yield Queue.prepare_data(basic.noop, job_id=f"{type(error).__name__}-1")
        raise error

    for error in (Interrupted(), Struck(), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            Queue("q", client).enqueue_many(datas(error))
        check_own_answers(client, conn, f"after {type(error).__name__}")
    assert conn.exists("rq:job:Interrupted-0") == 1
    pool: Any = client.connection_pool
    assert not pool._in_use_connections


@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_a_task_that_is_cancelled_anywhere(late: LateAnswers, conn: redis.Redis, kind: str) -> None:
    async def main() -> None:
        client = twin(ours(late.url)) if kind == "ours" else aredis.Redis.from_url(late.url)
        queue = AsyncQueue("q", client)
        await queue.enqueue(basic.noop, job_id="first")
        before = len(conn.client_list())
        for steps in range(30):
            task = asyncio.create_task(queue.enqueue(basic.noop))
            for _ in range(steps):
                await asyncio.sleep(0)
            if steps % 2:
                await asyncio.sleep(LATE / 2)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            for n in range(2):
                mark = f"{steps}-{n}"
                assert (await queue.enqueue(basic.noop, job_id=mark)).id == mark
                assert await client.execute_command("HGET", f"rq:job:{mark}", "func") == b"tests.jobs.basic.noop"
                await check_own_answer(client, conn, mark)
        assert len(conn.client_list()) <= before + 1
        await client.aclose()

    asyncio.run(main())


@pytest.mark.long
@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_a_handler_that_raises_inside_an_event_loop(late: LateAnswers, conn: redis.Redis, kind: str) -> None:
    """The loop goes on with its other tasks."""

    async def main() -> None:
        client = twin(ours(late.url)) if kind == "ours" else aredis.Redis.from_url(late.url)
        queue = AsyncQueue("q", client)
        await queue.enqueue(basic.noop)
        at, struck = 0, True
        while struck:
            at, struck = at + 2, False

            async def call(at: int = at) -> None:
                with Striking(at):
                    await queue.enqueue(basic.noop)

            try:
                await call()
            except Struck:
                struck = True
            mark = f"after-{at}"
            await check_own_answer(client, conn, f"{mark}-0")
            await check_own_answer(client, conn, f"{mark}-1")
        assert at > 20
        await client.aclose()

    asyncio.run(main())


def test_an_error_that_the_caller_handles_just_now_costs_no_connection(conn: redis.Redis, redis_url: str) -> None:
    client = ours(redis_url)
    Queue("q", client).enqueue(basic.noop)
    before = conn.info("stats")["total_connections_received"]
    try:
        raise ValueError
    except ValueError:
        for _ in range(5):
            Queue("q", client).enqueue(basic.noop)
            Queue("q", client).enqueue_many([Queue.prepare_data(basic.noop)])
    assert conn.info("stats")["total_connections_received"] == before


@pytest.mark.timeout(60, method="thread")  # the test has the alarm for itself
@pytest.mark.parametrize("call", [enqueue, enqueue_many, look], ids=lambda call: call.__name__)
@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_a_soft_timeout_lets_a_call_end(
    redis_url: str, conn: redis.Redis, kind: str, call: Callable[[redis.Redis], None]
) -> None:
    """Wherever it comes: no connection is left amid an exchange, so none is closed."""
    client = CLIENTS[kind](redis_url)
    call(client)
    before = conn.info("stats")["total_connections_received"]

    class Ringing(Striking):
        def _strike(self) -> None:
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGALRM)

    def struck(at: int) -> bool:
        try:
            with Ringing(at):
                run_with_timeout(60, "Task", call, client)
        except JobTimeoutException:
            return True
        return False

    at = 1
    while struck(at):
        at += 1
    assert at > 20
    if call is not enqueue_many:  # between its chunks the caller's own code runs, and may be struck
        assert conn.info("stats")["total_connections_received"] == before
    check_own_answers(client, conn, "after all")
    client.close()


_PACKS = """
import signal, time
from fusion.store.client.wire import pack
class Struck(BaseException): pass
def strike(*_): raise Struck
signal.signal(signal.SIGALRM, strike)
command, struck, end = ("EVALSHA", *range(10**15, 10**15 + 3000)), 0, time.monotonic() + 10
while struck < 1000 and time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002)
        while True:
            pack(command)
    except Struck:
        struck += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(struck)
"""


def test_a_handler_that_raises_while_a_command_is_encoded() -> None:
    """hiredis 3.5.0 dies of it, SIGSEGV, if there are ints in the command."""
    ended = subprocess.run([sys.executable, "-c", _PACKS], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended
    assert int(ended.stdout) > 100
