"""Commands past redis-py's client: what it does besides is done here too."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from redis import exceptions as errors

from fusion import Queue
from fusion.settings import Settings
from fusion.store.client.connections import connect
from fusion.store.client.wire import is_ours, sender
from tests.kit.servers import ScriptedServer

#: A script that gives back what it is given: what the least of users may do.
BACK = "return ARGV[1]"
Scripted = Callable[[Callable[[int], bytes | None]], ScriptedServer]


@pytest.mark.parametrize(
    "value", ["", "text", "Grüße ☃", b"\x00\xff\r\n", 7, -1, 2.5, "x" * 100_000], ids=lambda value: repr(value)[:12]
)
def test_a_value_arrives_as_by_redis_pys_client(redis_url: str, value: Any) -> None:
    with connect(redis_url) as client:
        assert sender(client)("EVAL", BACK, 0, value) == client.execute_command("EVAL", BACK, 0, value)


def test_values_that_the_client_refuses_are_refused(redis_url: str) -> None:
    with connect(redis_url) as client, pytest.raises(errors.DataError):
        sender(client)("EVAL", BACK, 0, None)


def test_an_error_of_the_server_leaves_the_connection_as_good_as_new(redis_url: str) -> None:
    with connect(redis_url) as client:
        send = sender(client)
        with pytest.raises(errors.NoScriptError):
            send("EVALSHA", "0" * 40, 0)
        with pytest.raises(errors.ResponseError, match="wrong number"):
            send("EVAL")
        assert send("EVAL", BACK, 0, "a") == b"a"
        pool: Any = client.connection_pool
        assert len(pool._available_connections) == pool._created_connections == 1


@pytest.mark.parametrize(("role", "tries"), [("producer", 4), ("worker", 1)])
def test_it_is_tried_as_often_as_the_role_says(scripted: Scripted, role: Any, tries: int) -> None:
    server = scripted(lambda n: None)
    with connect(Settings.load(redis_url=server.url), role) as client, pytest.raises(errors.ConnectionError):
        sender(client)("PING")
    assert server.commands == tries


def test_one_answer_that_is_lost_costs_a_producer_nothing(scripted: Scripted) -> None:
    server = scripted(lambda n: b"+PONG\r\n" if n else None)
    with connect(server.url) as client:
        send = sender(client)
        assert send("PING") == b"PONG"
        assert send("PING") == b"PONG"
    assert server.connections == 2


def test_an_answer_that_came_too_late_is_nobodys(scripted: Scripted) -> None:
    """The connection that waited for it is closed: what it brings then must not answer the next command."""
    server = scripted(lambda n: b"" if n == 0 else b"$%d\r\n%s\r\n" % (1, b"%d" % n))
    with connect(Settings.load(redis_url=server.url, socket_timeout=0.2), "worker") as client:
        send = sender(client)
        with pytest.raises(errors.TimeoutError):
            send("ECHO", "0")
        assert send("ECHO", "1") == b"1"
    assert server.connections == 2


def test_a_client_that_is_somebody_elses_sends_by_itself(redis_url: str) -> None:
    sent = []

    class Theirs(redis.Redis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            sent.append(args)
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call, unused-ignore]

    with Theirs.from_url(redis_url) as client:
        assert not is_ours(client)
        assert sender(client)("EVAL", BACK, 0, "a") == b"a"
    assert sent == [("EVAL", BACK, 0, "a")]


def test_a_tracer_sees_every_command(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those for Sentry and OpenTelemetry do it: by a function in the place of redis-py's."""
    seen, ordinary = [], redis.Redis.execute_command

    def traced(self: redis.Redis, *args: Any, **options: Any) -> Any:
        seen.append(args[0])
        return ordinary(self, *args, **options)  # type: ignore[no-untyped-call, unused-ignore]

    monkeypatch.setattr(redis.Redis, "execute_command", traced)
    with connect(redis_url) as client:
        assert len(Queue("q", client).enqueue_many([Queue.prepare_data("tasks.sms.sendSMS")])) == 1
        Queue("q", client).enqueue("tasks.sms.sendSMS")
    assert len([name for name in seen if name in ("EVALSHA", "EVAL")]) >= 2


def test_each_thread_gets_its_own_answers_and_no_more_connections_are_made_than_it_takes(
    redis_url: str, conn: redis.Redis
) -> None:
    before = conn.info("stats")["total_connections_received"]
    with connect(redis_url) as client, ThreadPoolExecutor(8) as threads:
        send = sender(client)

        def ask(nth: int) -> list[bytes]:
            return [send("EVAL", BACK, 0, f"{nth}-{n}") for n in range(100)]

        answers = [*threads.map(ask, range(8))]
        pool: Any = client.connection_pool
        assert not pool._in_use_connections
        assert len({id(one) for one in pool._available_connections}) == pool._created_connections <= 8
    assert answers == [[b"%d-%d" % (nth, n) for n in range(100)] for nth in range(8)]
    assert conn.info("stats")["total_connections_received"] - before <= 8


def test_one_connection_is_enough_for_a_client_that_may_have_no_more(redis_url: str) -> None:
    with connect(f"{redis_url}{'&' if '?' in redis_url else '?'}max_connections=1&socket_timeout=1") as client:
        send = sender(client)
        for n in range(3):
            assert send("EVAL", BACK, 0, n) == b"%d" % n
            assert client.ping()
        held = client.connection_pool.get_connection()
        with pytest.raises(errors.ConnectionError, match="each of the 1 connections"):
            send("PING")
        client.connection_pool.release(held)
        assert send("PING") == b"PONG"


def test_an_unrequested_reply_is_not_taken_as_an_answer(scripted: Scripted) -> None:
    """Also where one attempt is all there is."""
    server = scripted(lambda n: b"+first\r\n+unasked\r\n" if n == 0 else b"+second\r\n")
    with connect(server.url, "worker") as client:
        send = sender(client)
        assert send("PING") == b"first"
        assert send("PING") == b"second"
    assert server.connections == 2


def test_a_connection_that_the_server_closed_meanwhile_costs_no_attempt(redis_url: str, conn: redis.Redis) -> None:
    with connect(redis_url, "worker") as client:
        send = sender(client)
        for _ in range(3):
            assert send("PING") == b"PONG"
            assert conn.client_kill_filter(_type="normal", skipme=True)
            assert send("PING") == b"PONG"


def test_a_closed_client_opens_again(redis_url: str) -> None:
    client = connect(redis_url)
    send = sender(client)
    for _ in range(3):
        assert send("PING") == b"PONG"
        client.close()
        client.connection_pool.disconnect()


def test_parent_and_child_have_connections_of_their_own(redis_url: str) -> None:
    """Also if one lay ready when they parted, and whoever comes first."""
    with connect(redis_url) as client:
        send = sender(client)
        assert send("PING") == b"PONG"
        socket = _socket_of(client)
        pid = os.fork()
        if pid == 0:
            same = send("PING") != b"PONG" or _socket_of(client) == socket
            answers = [send("EVAL", BACK, 0, n) for n in range(100)]
            os._exit(int(same or answers != [b"%d" % n for n in range(100)]))
        assert [send("EVAL", BACK, 0, -n) for n in range(100)] == [b"%d" % -n for n in range(100)]
        assert os.waitpid(pid, 0)[1] == 0
        assert _socket_of(client) == socket


def _socket_of(client: redis.Redis) -> int:
    """What tells the socket of the one connection that lies ready."""
    [connection] = client.connection_pool._available_connections
    return os.fstat(connection._sock.fileno()).st_ino


def test_a_long_answer_comes_whole(redis_url: str) -> None:
    with connect(redis_url) as client:
        assert sender(client)("EVAL", "return string.rep('a', 1000000)", 0) == b"a" * 1_000_000
