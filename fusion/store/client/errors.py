"""Turns redis-py's errors into Fusion's, for programs that enqueue and read. A worker gets redis-py's own: its loop knows what each means.

What `fusion.store.access` returns raises StoreUnavailable where waiting helps, and ConfigurationError where a person must act. Each message
is one line that names the Redis, the problem and the remedy. Any other error is a bug and is raised unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import GeneratorType
from typing import Any, TypeVar, cast

from redis.exceptions import OutOfMemoryError, RedisError

from fusion.exceptions import ConfigurationError, FusionError, StoreFull, StoreUnavailable
from fusion.settings import mask_url
from fusion.store.client.classify import OTHERS_DATA, classify, one_line, reply_code
from fusion.store.client.connections import url_of
from fusion.store.client.maybe_executed import is_certain

T = TypeVar("T")
#: The attribute of a client with the classes to raise over it, see `raise_as`.
_CLASSES = "_fusion_unavailable"


def raise_as(connection: Any, unavailable: type[StoreUnavailable], full: type[StoreFull]) -> None:
    """Have these classes raised over the client in place of StoreUnavailable and StoreFull, whose subclasses they are."""
    vars(connection)[_CLASSES] = unavailable, full


@contextmanager
def fusion_errors(connection: Any) -> Iterator[None]:
    """Raise Fusion's errors in place of redis-py's inside the block. `connection`: the client, synchronous or asyncio."""
    try:
        yield
    except (RedisError, OSError) as error:
        told = fusion_error(error, connection)
        if told is None:
            raise
        raise told from error


def fusion_error(error: Exception, connection: Any) -> FusionError | None:
    """Return the error to raise in place of this one; None to keep it."""
    if isinstance(error, FusionError):  # one of `raise_as`
        return None
    if isinstance(error.__cause__, RedisError):  # redis.asyncio wraps the error of a connect, even a wrong password
        error = error.__cause__
    kind = classify(error)
    if reply_code(error) == "WRONGTYPE":
        named = re.search(r"the (?:concurrency|unique) key .* is broken at \S+", str(error))
        which = f"{named[0]}, which" if named else "a key"
        return ConfigurationError(
            f"Redis at {mask_url(url_of(connection))}: {which} holds {OTHERS_DATA} (WRONGTYPE)", code="FUS-207"
        )
    if kind == "bug":
        return None
    line = one_line(error, url_of(connection))
    if kind == "configuration":
        return ConfigurationError(line, code="FUS-208")
    full = isinstance(error, OutOfMemoryError) or reply_code(error) == "OOM"
    unavailable, full_class = getattr(connection, "__dict__", {}).get(_CLASSES, (StoreUnavailable, StoreFull))
    told: StoreUnavailable = full_class(line) if full else unavailable(line)
    told.nothing_written = is_certain(error)
    return told


class _Typed:
    """Wraps an object that calls Redis, and raises Fusion's errors."""

    def __init__(self, inner: Any, connection: Any) -> None:
        self._inner, self._connection = inner, connection

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                answer = method(*args, **kwargs)
            except (RedisError, OSError) as error:
                told = fusion_error(error, self._connection)
                if told is None:
                    raise
                raise told from error
            return self._each(answer) if isinstance(answer, GeneratorType) else answer

        vars(self)[name] = call  # looked up once
        return call

    def _each(self, answers: Iterator[Any]) -> Iterator[Any]:
        with fusion_errors(self._connection):
            yield from answers


def typed(inner: T, connection: Any) -> T:
    """Wrap `inner` so that every method of it raises Fusion's errors."""
    return cast(T, _Typed(inner, connection))


def repeatable(call: Callable[[], T]) -> T:
    """Run `call`, which is safe to run again; if it raises StoreUnavailable, the error's `repeat()` runs it again."""
    try:
        return call()
    except StoreUnavailable as error:
        error.repeat_with(lambda: repeatable(call))
        raise
