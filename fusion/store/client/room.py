"""Waiting for a connection of a pool that has none left: the first to come is the first to get one, or each gets an error that says so."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError

from fusion.store.client import maybe_executed

T = TypeVar("T")


class NoConnectionFree(RedisConnectionError):
    """All connections of the pool were in use for as long as a call may wait for one. Nothing was sent."""


def is_full(error: BaseException) -> bool:
    """True for the error of a pool that makes no more connections, of any version of redis-py and of ours."""
    return isinstance(error, RedisConnectionError) and (
        isinstance(error, NoConnectionFree)
        or type(error).__name__ == "MaxConnectionsError"
        or str(error) == "Too many connections"
    )


class Line(deque[Any]):
    """Those who wait for a connection of one pool, each by an event. Only the first tries to take one; it wakes the next when it leaves."""

    def wake(self) -> None:
        """Have the first try again: a connection was given back."""
        try:
            self[0].set()
        except IndexError:
            return

    def wait(self, take: Callable[[], T], pool: Any) -> T:
        """Stand in line, in this thread, and `take` a connection. NoConnectionFree after the seconds that an answer may take."""
        mine, until = threading.Event(), monotonic() + _patience(pool)
        self.append(mine)
        try:
            while True:
                mine.clear()
                if self[0] is mine:
                    try:
                        return take()
                    except RedisConnectionError as error:
                        if not is_full(error):
                            raise
                if not mine.wait(max(0.0, until - monotonic())):
                    raise _none_free(pool)
        finally:
            self.remove(mine)
            self.wake()

    async def wait_for(self, take: Callable[[], Awaitable[T]], pool: Any) -> T:
        """As `wait`, in a task of a loop."""
        mine, until = asyncio.Event(), monotonic() + _patience(pool)
        self.append(mine)
        try:
            while True:
                mine.clear()
                if self[0] is mine:
                    try:
                        return await take()
                    except RedisConnectionError as error:
                        if not is_full(error):
                            raise
                try:
                    await asyncio.wait_for(mine.wait(), max(0.0, until - monotonic()))
                except TimeoutError:
                    raise _none_free(pool) from None
        finally:
            self.remove(mine)
            self.wake()


def _patience(pool: Any) -> float:
    return float(pool.connection_kwargs.get("socket_timeout") or 5.0)


def _none_free(pool: Any) -> NoConnectionFree:
    error = NoConnectionFree(
        f"each of the {pool.max_connections} connections that this process may have is in use, and none came free within {_patience(pool):g} s"
    )
    maybe_executed.note(error, False)
    return error
