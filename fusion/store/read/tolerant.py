"""A connection for those who look: a key of a wrong type reads as if it were empty, and is remembered, so that it hides nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from redis import Redis
from redis.exceptions import ResponseError

from fusion.store.client.adapter import asking

#: What a command answers for a key that does not exist.
_EMPTY: dict[str, Callable[[list[Any]], Any]] = {
    "smembers": lambda args: set(),
    "hgetall": lambda args: {},
    "hmget": lambda args: [None] * len(args[1]),
    "xpending": lambda args: {"pending": 0, "min": None, "max": None, "consumers": []},
    **dict.fromkeys(("zcard", "zcount", "xlen", "llen", "scard", "hlen"), lambda args: 0),
    **dict.fromkeys(("zrange", "lrange", "xrange", "xrevrange", "xinfo_groups"), lambda args: []),
    **dict.fromkeys(("hget", "get", "zscore", "zrevrank", "lpos"), lambda args: None),
}
#: By the first letter of a command.
_KINDS = {"s": "a set", "z": "a sorted set", "h": "a hash", "l": "a list", "x": "a stream", "g": "a string"}


class Forgiving:
    """Passes everything on to a client, as `asking` does. `broken`: keys that were of a wrong type, with the type that they should be of."""

    def __init__(self, client: Redis) -> None:
        self._client = asking(client)
        self.broken: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._forgiving(name, found) if name in _EMPTY else found

    def _forgiving(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def forgiving(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            except ResponseError as error:
                if not self.note(name, args, error):
                    raise
                return _EMPTY[name](list(args))

        return forgiving

    def zscan_iter(self, key: str, **kwargs: Any) -> Iterator[Any]:
        """Yield the members of a ZSET."""
        try:
            yield from self._client.zscan_iter(key, **kwargs)
        except ResponseError as error:
            if not self.note("zscan", (key,), error):
                raise

    def note(self, name: str, args: tuple[Any, ...], error: object) -> bool:
        """Remember a key of a wrong type; False if the error is about something else."""
        wrong = isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE")
        if wrong:
            key = args[0]
            self.broken[key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)] = _KINDS[name[0]]
        return wrong

    def pipeline(self, transaction: bool = False) -> Any:
        """Make a pipeline that is as forgiving."""
        return _Pipeline(self, self._client.pipeline(transaction=transaction))


class _Pipeline:
    """A pipeline that remembers what was asked, to find the key that an error is about."""

    def __init__(self, owner: Forgiving, pipe: Any) -> None:
        self._owner, self._pipe = owner, pipe
        self._asked: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        def asked(*args: Any, **kwargs: Any) -> None:
            self._asked.append((name, args))
            getattr(self._pipe, name)(*args, **kwargs)

        return asked

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send the commands. A key of a wrong type reads as empty, or as its error without `raise_on_error`."""
        replies = list(self._pipe.execute(raise_on_error=False))
        for i, ((name, args), reply) in enumerate(zip(self._asked, replies, strict=True)):
            if not isinstance(reply, Exception):
                continue
            if self._owner.note(name, args, reply):
                if raise_on_error:  # who does not want that tells of the error in its own place
                    replies[i] = _EMPTY[name](list(args))
            elif raise_on_error:
                raise reply
        return replies


def in_words(broken: Mapping[str, str]) -> list[str]:
    """Tell of each key in a sentence."""
    return [f"{key} should be {kind} and is something else" for key, kind in sorted(broken.items())]


def forgiving(client: Redis) -> tuple[Redis, dict[str, str]]:
    """Make a client to look through; returns with it the keys of a wrong type that were met, which grow as it is used."""
    found = Forgiving(client)
    return cast(Redis, found), found.broken
