from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis import exceptions as errors

from fusion.store.client.connections import classify, connect
from fusion.store.client.resp import NonBlockingReader
from tests.kit.servers import ScriptedServer
from tests.kit.waiting import eventually

Scripted = Callable[[Callable[[int], bytes | None]], ScriptedServer]


def replies(reader: NonBlockingReader, count: int, timeout: float = 10.0) -> list[Any]:
    """`count` replies, woken by a selector as a worker is."""
    found: list[Any] = []
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while len(found) < count:
            selector.modify(reader, selectors.EVENT_READ | (selectors.EVENT_WRITE if reader.wants_write else 0))
            assert selector.select(deadline - time.monotonic()), f"only {len(found)} of {count} replies: {found[-3:]}"
            found += reader.receive()
    return found


@pytest.fixture
def reader(redis_url: str) -> Iterator[NonBlockingReader]:
    made = NonBlockingReader.of(connect(redis_url, "worker"))
    yield made
    made.close()


def test_nothing_to_read_is_no_reply(reader: NonBlockingReader) -> None:
    assert reader.receive() == []


def test_a_doorbell_rings(reader: NonBlockingReader, conn: redis.Redis) -> None:
    reader.send("BLPOP", "rq:wake:sms", "rq:wake:email", 0.05)
    assert replies(reader, 1) == [None]
    reader.send("BLPOP", "rq:wake:sms", "rq:wake:email", 30)
    conn.rpush("rq:wake:email", "1")
    assert replies(reader, 1) == [[b"rq:wake:email", b"1"]]


def test_commands_by_subscription(reader: NonBlockingReader, conn: redis.Redis) -> None:
    reader.send("SUBSCRIBE", "rq:pubsub:w1")
    assert replies(reader, 1) == [[b"subscribe", b"rq:pubsub:w1", 1]]
    for word in ("one", "two", "three"):
        assert conn.publish("rq:pubsub:w1", word) == 1
    assert replies(reader, 3) == [[b"message", b"rq:pubsub:w1", word] for word in (b"one", b"two", b"three")]


def test_a_reply_in_pieces_is_given_out_when_it_is_whole() -> None:
    near, far = socket.socketpair()
    connection: Any = connect("redis://h").connection_pool.make_connection()
    connection._sock = near
    made = NonBlockingReader(connection)
    for byte in b"*2\r\n$3\r\nkey\r\n$2\r\n\r\n\r\n":
        assert made.receive() == []
        far.sendall(bytes([byte]))
    assert made.receive() == [[b"key", b"\r\n"]]
    far.sendall(b"+a\r\n-BUSY x\r\n:3\r\n$-1\r\n")
    first, error, third, none = made.receive()
    assert (first, third, none) == (b"a", 3, None)
    assert classify(error) == "transient"
    # What came before the end is not lost to the end.
    far.sendall(b"+last\r\n")
    far.close()
    assert made.receive() == [b"last"]
    with pytest.raises(errors.ConnectionError, match="closed the connection"):
        made.receive()
    assert made.closed


def test_error_replies_are_in_the_list(reader: NonBlockingReader) -> None:
    reader.send("NOSUCHCOMMAND")
    reader.send("PING")
    error, pong = replies(reader, 2)
    assert isinstance(error, errors.ResponseError)
    assert pong == b"PONG"
    assert not reader.closed


def test_a_large_command_goes_out_in_parts(reader: NonBlockingReader, conn: redis.Redis) -> None:
    value = b"x" * 30_000_000
    reader.send("SET", "rq:big", value)
    waits = reader.wants_write
    assert waits, "nothing here shows partial writes if the socket takes 30 MB at once"
    assert replies(reader, 1) == [b"OK"]
    assert not reader.wants_write
    assert conn.strlen("rq:big") == len(value)


def test_a_chatty_channel_does_not_hold_the_loop(reader: NonBlockingReader, conn: redis.Redis) -> None:
    conn.set("rq:big", b"x" * 5_000_000)
    for _ in range(4):
        reader.send("GET", "rq:big")
    assert [len(reply) for reply in replies(reader, 4)] == [5_000_000] * 4


def test_a_killed_connection_ends_the_reader(reader: NonBlockingReader, conn: redis.Redis) -> None:
    reader.send("BLPOP", "rq:wake:bell", 0)
    descriptor = reader.fileno()

    def numbers() -> list[str]:
        return [str(client["id"]) for client in conn.client_list() if client["cmd"] == "blpop"]

    (number,) = eventually(numbers)
    conn.client_kill_filter(_id=number)
    with pytest.raises(errors.ConnectionError) as caught:
        replies(reader, 1)
    assert classify(caught.value) == "transient"
    assert reader.closed
    assert reader.fileno() == descriptor
    for action in (lambda: reader.send("PING"), reader.receive):
        with pytest.raises(errors.ConnectionError, match="is closed"):
            action()
    reader.close()


def test_a_server_that_is_not_redis_is_refused(scripted: Scripted) -> None:
    server = scripted(lambda n: b"HTTP/1.1 400 Bad Request\r\n\r\n")
    made = NonBlockingReader.of(connect(server.url, "worker"))
    made.send("PING")
    with pytest.raises(errors.ConnectionError, match="not the Redis protocol"):
        replies(made, 1)
    assert made.closed


def test_closing_gives_the_connection_back(redis_url: str) -> None:
    client = connect(redis_url + "&max_connections=1", "worker")
    for _ in range(3):
        made = NonBlockingReader.of(client)
        made.send("PING")
        assert replies(made, 1) == [b"PONG"]
        made.close()
    assert client.ping(), "the pool's one connection is usable again, and blocking"
