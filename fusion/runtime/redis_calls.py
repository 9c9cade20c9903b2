"""A call to Redis as the scheduler makes it: a key that is not what it should be must not look like an outage, which stops everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from redis.exceptions import OutOfMemoryError, ResponseError

from fusion.runtime.redis_link import RedisLink
from fusion.store.client.connections import classify

T = TypeVar("T")


class CallRefused(Exception):
    """Redis answered, and its answer is that this call can't be carried out: of what it is about, a key is not what it should be."""


class ServerFull(CallRefused):
    """Redis takes nothing new until there is room again."""


def attempt(link: RedisLink, call: Callable[[], T], *, look: bool = False) -> T:
    """`link.attempt`. RedisAway if Redis can't be reached, or nothing can be done with it; CallRefused or ServerFull if it is this call alone."""

    def guarded() -> T | CallRefused:
        try:
            return call()
        except ResponseError as error:
            text = " ".join(str(error).split(" script: ")[0].split())  # what follows names the script by its hash
            if isinstance(error, OutOfMemoryError):
                return ServerFull(f"OOM {text.removeprefix('OOM ')}")
            if classify(error) != "bug":
                raise
            return CallRefused(text)

    answer = link.attempt(guarded, look=look)
    if isinstance(answer, CallRefused):
        raise answer
    return answer
