"""Waiting for a connection of an exhausted pool. Callers are served in order of arrival; a caller that waits too long gets an error that
names the limit."""

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
    """All connections of the pool stayed in use for the time that a call may wait. Nothing was sent."""


def is_full(error: BaseException) -> bool:
    """Return True for the error of an exhausted pool, of any version of redis-py and of Fusion."""
    return isinstance(error, RedisConnectionError) and (
        isinstance(error, NoConnectionFree)
        or type(error).__name__ == "MaxConnectionsError"
        or str(error) == "Too many connections"
    )


class Waiters(deque[Any]):
    """The calls that wait for a connection of one pool, each by an event. Only the first tries to take one; it wakes the next when it leaves."""

    def wake(self) -> None:
        """Let the first try again: a connection was given back."""
        try:
            self[0].set()
        except IndexError:
            return

    def wait(self, take: Callable[[], T], pool: Any) -> T:
        """Wait in line, in this thread, then `take` a connection. NoConnectionFree after the seconds that a reply may take."""
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
        """Wait as `wait` does, in a task of a loop."""
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
