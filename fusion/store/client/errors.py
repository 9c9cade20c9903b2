"""redis-py's errors as Fusion's, for programs that enqueue and look. A worker gets them as they come: its loop knows what each means.

What `fusion.store.access` hands out raises StoreUnavailable where waiting helps, and ConfigurationError where only a person does, each with
one line that says which Redis, what, and what to do. An error that is neither is nobody's to handle and stays what it is.
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


@contextmanager
def fusion_errors(connection: Any) -> Iterator[None]:
    """Raise Fusion's errors in place of redis-py's inside the block. `connection`: the client, of either kind."""
    try:
        yield
    except (RedisError, OSError) as error:
        told = fusion_error(error, connection)
        if told is None:
            raise
        raise told from error


def fusion_error(error: Exception, connection: Any) -> FusionError | None:
    """Choose what to raise in place of an error; None to let it be."""
    if isinstance(error.__cause__, RedisError):  # redis.asyncio wraps what goes wrong with a connect, a wrong password too
        error = error.__cause__
    kind = classify(error)
    if reply_code(error) == "WRONGTYPE":
        named = re.search(r"the (?:concurrency|unique) key .* is broken at \S+", str(error))
        which = f"{named[0]}, which" if named else "a key"
        return ConfigurationError(f"Redis at {mask_url(url_of(connection))}: {which} holds {OTHERS_DATA} (WRONGTYPE)")
    if kind == "bug":
        return None
    line = one_line(error, url_of(connection))
    if kind == "configuration":
        return ConfigurationError(line)
    full = isinstance(error, OutOfMemoryError) or reply_code(error) == "OOM"
    told = StoreFull(line) if full else StoreUnavailable(line)
    told.nothing_written = is_certain(error)
    return told


class _Typed:
    """Stands for an object that speaks to Redis, and raises Fusion's errors."""

    def __init__(self, inner: Any, connection: Any) -> None:
        self._inner, self._connection = inner, connection

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if callable(value):
            value = self._calling(value)
            vars(self)[name] = value  # asked for once
        return value

    def _calling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                answer = method(*args, **kwargs)
            except (RedisError, OSError) as error:
                told = fusion_error(error, self._connection)
                if told is None:
                    raise
                raise told from error
            return self._each(answer) if isinstance(answer, GeneratorType) else answer

        return call

    def _each(self, answers: Iterator[Any]) -> Iterator[Any]:
        with fusion_errors(self._connection):
            yield from answers


def typed(inner: T, connection: Any) -> T:
    """Wrap `inner` so that every method of it raises Fusion's errors."""
    return cast(T, _Typed(inner, connection))


def repeatable(call: Callable[[], T]) -> T:
    """Run `call`, which is safe to run again; a StoreUnavailable out of it repeats it."""
    try:
        return call()
    except StoreUnavailable as error:
        error.repeat_with(lambda: repeatable(call))
        raise
