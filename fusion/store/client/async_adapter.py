"""A client for asyncio as Fusion uses it, whoever made it; see `fusion.store.client.adapter`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from redis.exceptions import RedisError

from fusion.kernel.timeouts import unbroken
from fusion.store.client.adapter import plain, undecoded, words
from fusion.store.client.async_connections import AsyncCleanPool


class AsyncAsking:
    """Sends each command through an application's client. redis-py closes the connection of a call that was cancelled while it waited. An
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
        pipe = plain(self._client.pipeline(transaction=False), self._options)
        execute = pipe.execute
        pipe.execute = lambda raise_on_error=True: self._whole(execute(raise_on_error))
        return pipe

    async def _whole(self, call: Awaitable[Any]) -> Any:
        try:
            with unbroken():
                return await call
        except (RedisError, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:
            if self._client.connection is not None:  # its pipelines take theirs from the pool all the same
                await self._client.connection.disconnect()
            if not isinstance(self._client.connection_pool, AsyncCleanPool):
                await self._client.connection_pool.disconnect(inuse_connections=False)
            raise
