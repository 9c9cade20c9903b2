"""The asyncio twin of a synchronous client: the same server, login, TLS and limits, in the classes of redis.asyncio. And any client for asyncio
as Fusion uses it, see `fusion.store.client.adapter`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import redis
from redis import asyncio as aredis
from redis import exceptions as errors
from redis.asyncio import connection as kinds
from redis.asyncio import sentinel
from redis.asyncio.retry import Retry
from redis.connection import SSLConnection, UnixDomainSocketConnection
from redis.sentinel import SentinelConnectionPool

from fusion.kernel.timeouts import unbroken
from fusion.settings import Settings, get_settings
from fusion.store.client import maybe_executed
from fusion.store.client.adapter import undecoded, words
from fusion.store.client.classify import classify, is_moving
from fusion.store.client.cluster import LOST, QUESTIONS, Address, ClusterConnection, ClusterNodes
from fusion.store.client.connections import MOVING, BoundedRetry, connect
from fusion.store.client.room import Waiters, is_full
from fusion.store.client.wire import pack

T = TypeVar("T")


class AsyncBoundedRetry(Retry):
    """redis-py's retry loop with the differences of `BoundedRetry`, awaited."""

    _inside = False

    async def call_with_retry(
        self,
        do: Callable[[], Awaitable[T]],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,
    ) -> T:
        """Await `do` until it succeeds, and `fail` after each failure. Raises the last error; `maybe_executed` is noted on it."""
        if self._inside:
            return await do()
        self._inside = True
        failures, doubtful, until = 0, False, 0.0
        try:
            while True:
                try:
                    return await do()
                except (errors.RedisError, OSError) as caught:
                    # redis.asyncio wraps the error of a connect, even a wrong password, in a ConnectionError of its own
                    error: Exception = caught
                    if isinstance(caught.__cause__, errors.RedisError):
                        error, caught.__cause__ = caught.__cause__, None
                    doubtful = maybe_executed.note(error, doubtful)
                    if classify(error) != "transient" or isinstance(error, errors.OutOfMemoryError):
                        raise error from error.__cause__
                    failures += 1
                    await fail(*((error, failures) if with_failure_count else (error,)))
                    if failures > self._retries:
                        until = until or time.monotonic() + MOVING
                        if not (self._retries and is_moving(error) and time.monotonic() < until):
                            raise error from error.__cause__
                    await asyncio.sleep(self._backoff.compute(failures))
        finally:
            self._inside = False


class AsyncCleanPool(aredis.ConnectionPool):
    """Closes a connection that comes back while an exception propagates, and lets a call wait if the pool is exhausted, as `CleanPool` does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._waiters = Waiters()
        super().__init__(*args, **options)

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        """Hand out a connection, and note on it the exception that the caller is handling."""
        connection: Any
        if self._waiters:
            connection = await self._waiters.wait_for(self._take, self)
        else:
            try:
                connection = await self._take()
            except errors.ConnectionError as error:
                if not is_full(error):
                    raise
                connection = await self._waiters.wait_for(self._take, self)
        connection.amid = id(sys.exception())
        return connection

    async def _take(self) -> Any:
        return await super().get_connection()  # type: ignore[no-untyped-call, unused-ignore]

    async def release(self, connection: Any) -> None:
        """Take a connection back; one that was left in the middle of an exchange is closed first."""
        try:
            await self._release(connection)
        finally:
            self._waiters.wake()

    async def _release(self, connection: Any) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, errors.ResponseError) and id(error) != getattr(connection, "amid", 0):
            await connection.disconnect(nowait=True)
        await super().release(connection)


class AsyncCleanSentinelPool(sentinel.SentinelConnectionPool, AsyncCleanPool):
    """An `AsyncCleanPool` that asks Sentinel for the master."""


class AsyncClusterConnection(kinds.Connection):
    """A TCP connection to the node that serves a slot."""

    #: True while `host` and `port` are those of a node to ask.
    _asking = False

    def __init__(self, nodes: ClusterNodes, **options: Any) -> None:
        self.nodes = nodes
        super().__init__(**options)

    async def connect(self) -> None:
        """Connect to the node that serves the slot now."""
        if not self.is_connected:
            await self.retry.call_with_retry(self._find, lambda error: asyncio.sleep(0))

    async def connect_check_health(self, *args: Any, **options: Any) -> None:
        """Do the same where redis-py would connect to the last address again."""
        if self._asking:
            await super().connect_check_health(*args, **options)
        else:
            await self.connect()

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Read a reply. After one that says that another node serves the slot, the connection is closed."""
        try:
            return await super().read_response(*args, **options)
        except LOST:
            await self.disconnect(nowait=True)
            raise

    async def _find(self) -> None:
        steps = self.nodes.route(2 * (self.socket_connect_timeout or 0))
        try:
            address = next(steps)
            while True:
                try:
                    replies = await self._ask(address)
                except (errors.RedisError, OSError) as error:
                    address = steps.throw(error)
                else:
                    address = steps.send(replies)
        except StopIteration:
            return
        except BaseException:
            await self.disconnect(nowait=True)
            raise

    async def _ask(self, address: Address) -> tuple[Any, Any]:
        await self.disconnect(nowait=True)
        self.host, self.port = address
        self._asking = True
        try:
            await super().connect()  # type: ignore[no-untyped-call, unused-ignore]
        finally:
            self._asking = False
        for question in QUESTIONS:
            await self.send_command(*question, check_health=False)
        return await self.read_response(), await self.read_response()


class AsyncClusterSSLConnection(kinds.SSLConnection, AsyncClusterConnection):
    """A TLS connection to the node that serves a slot."""


@cache
def _packing(kind: Any) -> Any:
    """Return a subclass of a connection class that encodes commands in C, as redis-py's synchronous ones do. Encoding word by word in Python
    costs an eighth of an enqueue."""

    def pack_command(self: Any, name: Any, *words: Any) -> Any:
        packed = pack((name, *words)) if name.isalnum() else None  # it parts a name of two words
        return kind.pack_command(self, name, *words) if packed is None else [packed]

    return type(f"Packing{kind.__name__}", (kind,), {"pack_command": pack_command})


async def _greet(connection: Any) -> None:
    await connection.on_connect()
    if not (connection.username or connection.password or connection.credential_provider or connection.db):
        await connection.send_command("PING", check_health=False)
        await connection.read_response()


def twin(client: redis.Redis) -> aredis.Redis:
    """Make the asyncio twin of a synchronous client; nothing is sent yet."""
    pool = client.connection_pool
    options = {name: value for name, value in pool.connection_kwargs.items() if name not in ("connection_pool", "retry")}
    options["max_connections"] = pool.max_connections
    retry = pool.connection_kwargs.get("retry")
    if isinstance(retry, BoundedRetry):
        options["retry"] = AsyncBoundedRetry(retry._backoff, retry._retries)
    if "redis_connect_func" in options:
        options["redis_connect_func"] = _greet
    secure = issubclass(pool.connection_class, SSLConnection)
    kind: Any
    if isinstance(pool, SentinelConnectionPool):
        manager: Any = sentinel.Sentinel([])  # type: ignore[no-untyped-call]
        manager.sentinels = [twin(one) for one in pool.sentinel_manager.sentinels]
        kind = sentinel.SentinelManagedSSLConnection if secure else sentinel.SentinelManagedConnection
        following: Any = AsyncCleanSentinelPool
        return aredis.Redis.from_pool(following(pool.service_name, manager, connection_class=_packing(kind), **options))
    if issubclass(pool.connection_class, ClusterConnection):
        kind = AsyncClusterSSLConnection if secure else AsyncClusterConnection
    elif issubclass(pool.connection_class, UnixDomainSocketConnection):
        kind = kinds.UnixDomainSocketConnection
    else:
        kind = kinds.SSLConnection if secure else kinds.Connection
    return aredis.Redis.from_pool(AsyncCleanPool(connection_class=_packing(kind), **options))


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Settings, aredis.Redis]] = WeakKeyDictionary()


def loops_client() -> aredis.Redis:
    """Return the running loop's own client, made once from the current settings: no other loop can use its connections. NoRedisError if there
    is no Redis."""
    loop, settings = asyncio.get_running_loop(), get_settings()
    held = _clients.get(loop)
    if held is None or held[0] is not settings:
        held = _clients[loop] = (settings, twin(connect(settings)))
    return held[1]


async def close_loops_client() -> None:
    """Close the connections of the running loop's client. The next caller gets a new client."""
    held = _clients.pop(asyncio.get_running_loop(), None)
    if held is not None:
        await held[1].aclose()


class AsyncAsking:
    """Sends each command through any client. redis-py closes the connection of a call that was cancelled while it waited. An
    exception of a signal handler may also be raised between its waits."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._options = undecoded(client)

    @property
    def connection_pool(self) -> Any:
        """The pool of the client."""
        return self._client.connection_pool

    async def execute_command(self, *command: Any) -> Any:
        """Send one command."""
        return await self._whole(self._client.execute_command(*words(command), **self._options))

    def pipeline(self, transaction: bool = False) -> Any:
        """Make a pipeline without MULTI that sends and replies in the same way."""
        assert not transaction
        pipe = self._client.pipeline(transaction=False)
        add, execute = pipe.execute_command, pipe.execute
        pipe.execute_command = lambda *command, **options: add(*words(command), **options, **self._options)
        pipe.execute = lambda raise_on_error=True: self._whole(execute(raise_on_error))
        return pipe

    async def _whole(self, call: Awaitable[Any]) -> Any:
        try:
            with unbroken():
                return await call
        except (errors.RedisError, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:
            if self._client.connection is not None:  # its pipelines take theirs from the pool all the same
                await self._client.connection.disconnect()
            if not isinstance(self._client.connection_pool, AsyncCleanPool):
                await self._client.connection_pool.disconnect(inuse_connections=False)
            raise
