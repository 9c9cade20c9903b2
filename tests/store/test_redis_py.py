"""The contract with redis-py: what `fusion/store/client` takes for granted inside it, claim by claim, against the installed version.

A new major that breaks one fails here with the claim as its message, and the module that must change.
"""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import Callable
from typing import Any

import hiredis
import pytest
import redis
from redis import exceptions as errors
from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.backoff import ConstantBackoff
from redis.client import NEVER_DECODE
from redis.retry import Retry

from fusion.store.client.connections import connect
from fusion.store.client.resp import NonBlockingReader
from fusion.store.client.sockets import NamedConnection

PING = b"*1\r\n$4\r\nPING\r\n"
Claim = Callable[[str], bool]
CLAIMS: dict[str, tuple[str, Claim]] = {}


def claim(module: str, text: str) -> Callable[[Claim], Claim]:
    """Add a check to the claims; it is given the url of a server."""

    def add(check: Claim) -> Claim:
        CLAIMS[text] = module, check
        return check

    return add


def connection_of(url: str, **options: Any) -> Any:
    return redis.Redis.from_url(url, protocol=2, **options).connection_pool.get_connection()


@claim("wire", "a pool hands out a connected connection by get_connection() and takes it back by release(connection)")
def _(url: str) -> bool:
    pool = redis.Redis.from_url(url).connection_pool
    first = pool.get_connection()
    connected = first._sock is not None
    pool.release(first)
    return connected and pool.get_connection() is first


@claim("wire", "send_packed_command([bytes]) sends and reads nothing, and read_response() reads one answer")
def _(url: str) -> bool:
    line = connection_of(url)
    line.send_packed_command([PING])
    line.send_packed_command([PING, PING])
    return [line.read_response() for _ in range(3)] == [b"PONG"] * 3


@claim(
    "wire",
    "what a connection sends is answered on _sock, and _parser._reader makes of it an answer, NOT_ENOUGH_DATA, or redis-py's exception",
)
def _(url: str) -> bool:
    line = connection_of(url)
    line.send_packed_command([hiredis.pack_command(("EVALSHA", "0" * 40, "0"))])
    reader = line._parser._reader
    before = reader.gets()
    answer = line._sock.recv(1000)
    reader.feed(answer[:5])
    begun = reader.gets()
    reader.feed(answer[5:])
    return before is begun is NOT_ENOUGH_DATA and reader.has_data() and isinstance(reader.gets(), errors.NoScriptError)


@claim(
    "sockets", "a pool has pid, _lock, _available_connections, a list, and _in_use_connections, a set; a connection has its pid"
)
def _(url: str) -> bool:
    pool: Any = redis.Redis.from_url(url).connection_pool
    line = pool.get_connection()
    used = pool._in_use_connections == {line} and pool._available_connections == []
    pool.release(line)
    with pool._lock:
        free = pool._in_use_connections == set() and pool._available_connections == [line]
    return used and free and pool.pid == line.pid == os.getpid()


@claim("wire", "read_response() raises an error reply as the exception of redis.exceptions, and the connection stays good")
def _(url: str) -> bool:
    line = connection_of(url)
    line.send_packed_command([hiredis.pack_command(("EVALSHA", "0" * 40, "0"))])
    with pytest.raises(errors.NoScriptError):
        line.read_response()
    line.send_packed_command([PING])
    return bool(line.read_response() == b"PONG")


@claim("wire", "a disconnected connection connects again by itself at its next send_packed_command")
def _(url: str) -> bool:
    line = connection_of(url)
    line.disconnect()
    line.send_packed_command([PING])
    return bool(line.read_response() == b"PONG")


@claim("wire", "connection.retry.call_with_retry(do, fail) calls fail(error) between the attempts that the client was given")
def _(url: str) -> bool:
    line = connection_of(url, retry=Retry(ConstantBackoff(0), 2))
    failed: list[Exception] = []

    def do() -> None:
        raise errors.ConnectionError("no")

    with pytest.raises(errors.ConnectionError):
        line.retry.call_with_retry(do, failed.append)
    return len(failed) == 3 and all(isinstance(error, errors.ConnectionError) for error in failed)


@claim("wire", "execute_command is a plain function of redis.Redis, in the module of that class")
def _(url: str) -> bool:
    return inspect.isfunction(redis.Redis.execute_command) and redis.Redis.execute_command.__module__ == redis.Redis.__module__


@claim("wire", "client.connection is None unless the client keeps one connection to itself")
def _(url: str) -> bool:
    shared, own = redis.Redis.from_url(url), redis.Redis.from_url(url, single_connection_client=True)
    return shared.connection is None and own.connection is not None


@claim("wire", "pool.connection_kwargs holds the options, the retry among them")
def _(url: str) -> bool:
    retry = Retry(ConstantBackoff(0), 1)
    return redis.Redis.from_url(url, retry=retry).connection_pool.connection_kwargs["retry"] is retry


@claim(
    "wire",
    "connection._sock is the socket, None when disconnected, and connection._parser.parse_error makes the exception of a reply",
)
def _(url: str) -> bool:
    line = connection_of(url)
    connected = isinstance(line._sock, socket.socket)
    line.disconnect()
    return connected and line._sock is None and type(line._parser.parse_error("NOSCRIPT none")) is errors.NoScriptError


@claim("wire", "a connection whose socket somebody else reads may be disconnected and given back")
def _(url: str) -> bool:
    client = connect(url)
    reader = NonBlockingReader.of(client)
    reader.close()
    return client.connection_pool.get_connection()._sock is not None


@claim("connections", "a Retry holds _retries and _backoff, and compute(failures) of the latter gives seconds")
def _(url: str) -> bool:
    retry = Retry(ConstantBackoff(0.5), 7)
    return retry._retries == 7 and retry._backoff.compute(1) == 0.5


@claim(
    "sockets",
    "Connection._connect() connects to self.host, and every connection sends by send_packed_command(command, check_health)",
)
def _(url: str) -> bool:
    listener = socket.create_server(("127.0.0.1", 0))
    line = NamedConnection(host="localhost", port=listener.getsockname()[1], socket_connect_timeout=5)
    with listener, line._connect() as sock:
        met = sock.getpeername()[0] in ("127.0.0.1", "::1")
    return met and list(inspect.signature(redis.Connection.send_packed_command).parameters)[1:3] == ["command", "check_health"]


@claim("adapter", "the option NEVER_DECODE of a command answers in bytes, whatever decode_responses says")
def _(url: str) -> bool:
    client: Any = redis.Redis.from_url(url, decode_responses=True)
    decodes = client.get_encoder().decode_responses
    return bool(decodes) and client.execute_command("EVAL", "return 'a'", 0, **{NEVER_DECODE: True}) == b"a"


@claim("adapter", "a pipeline's commands all go through its execute_command, and it can be replaced")
def _(url: str) -> bool:
    pipe: Any = redis.Redis.from_url(url).pipeline(transaction=False)
    seen: list[Any] = []
    pipe.execute_command = lambda *command, **options: seen.append(command)
    pipe.hget("rq:key", "field")
    return seen == [("HGET", "rq:key", "field")]


@claim("replication", "a pipeline without MULTI gives raise_first_error(commands, replies) what was answered, errors included")
def _(url: str) -> bool:
    pipe: Any = redis.Redis.from_url(url).pipeline(transaction=False)
    seen: list[Any] = []
    pipe.raise_first_error = lambda commands, replies: seen.extend(replies)
    pipe.execute_command("EVALSHA", "0" * 40, 0)
    pipe.execute_command("PING")
    pipe.execute()
    return isinstance(seen[0], errors.NoScriptError) and len(seen) == 2


def check(text: str, url: str) -> None:
    """Fail with a sentence that says what redis-py changed, and where that matters."""
    module, holds = CLAIMS[text]
    try:
        kept, why = holds(url), ""
    except (Exception, pytest.fail.Exception) as error:
        kept, why = False, f" ({type(error).__name__}: {error})"
    assert kept, f"redis-py {redis.__version__} changed what fusion/store/client/{module}.py relies on: {text}{why}"


@pytest.mark.parametrize("text", CLAIMS)
def test_redis_py_keeps_to(text: str, redis_url: str) -> None:
    check(text, redis_url)


def test_a_change_is_told_in_a_sentence(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = next(text for text in CLAIMS if text.startswith("execute_command is a plain function"))
    monkeypatch.setattr(redis.Redis, "execute_command", print)
    with pytest.raises(
        AssertionError, match=r"redis-py \S+ changed what fusion/store/client/wire\.py relies on: execute_command is"
    ):
        check(text, redis_url)
