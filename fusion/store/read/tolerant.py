"""A connection for readers: a key of a wrong type reads as empty and is recorded, so that it hides nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from redis import Redis
from redis.exceptions import ResponseError

from fusion.store.client.adapter import Asking, client_of
from fusion.store.layout import codec

#: The reply of a command for a key that does not exist.
_EMPTY: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "SMEMBERS": lambda command: set(),
    "HGETALL": lambda command: {},
    "HMGET": lambda command: [None] * len(command[2:]),
    "XPENDING": lambda command: {"pending": 0, "min": None, "max": None, "consumers": []},
    **dict.fromkeys(("ZSCAN", "SSCAN", "HSCAN"), lambda command: (0, [])),
    **dict.fromkeys(("ZCARD", "ZCOUNT", "XLEN", "LLEN", "SCARD", "HLEN", "HSTRLEN", "SISMEMBER"), lambda command: 0),
    **dict.fromkeys(("ZRANGE", "LRANGE", "XRANGE", "XREVRANGE", "XINFO GROUPS", "HKEYS", "ZREVRANGE"), lambda command: []),
    **dict.fromkeys(("HGET", "GET", "ZSCORE", "ZRANK", "ZREVRANK", "LPOS"), lambda command: None),
}
#: By the first letter of a command.
_KINDS = {"S": "a set", "Z": "a sorted set", "H": "a hash", "L": "a list", "X": "a stream", "G": "a string"}


class Forgiving(Asking):
    """Sends commands through a client. `broken`: keys that were of a wrong type, each with the right type."""

    def __init__(self, client: Redis) -> None:
        super().__init__(client_of(client))
        self.broken: dict[str, str] = {}

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send one command. A key of a wrong type reads as empty."""
        try:
            return super().execute_command(*command, **options)
        except ResponseError as error:
            if not self._note(command, error):
                raise
            return _EMPTY[command[0]](command)

    def _execute(self, execute: Callable[[bool], Any], commands: list[tuple[Any, ...]], raise_on_error: bool = True) -> Any:
        """Send the commands of a pipeline. A key of a wrong type reads as empty, or as its error if errors are not raised."""
        replies = self._whole(execute, False)
        for i, (command, reply) in enumerate(zip(commands, replies, strict=True)):
            broken = self._note(command, reply)
            if broken and raise_on_error:
                replies[i] = _EMPTY[command[0]](command)
            elif raise_on_error and isinstance(reply, Exception):
                raise reply
        return replies

    def _note(self, command: tuple[Any, ...], reply: object) -> bool:
        """Record a key of a wrong type; False for any other reply."""
        wrong = isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE") and command[0] in _EMPTY
        if wrong:
            self.broken[codec.text(command[1])] = _KINDS[command[0][0]]
        return wrong


def note_broken(connection: object, key: str, kind: str) -> None:
    """Record a key of a wrong type that a script met, with the right type, if this is a connection that records them."""
    if isinstance(connection, Forgiving):
        connection.broken[key] = kind


def in_words(broken: Mapping[str, str]) -> list[str]:
    """Describe each key in a sentence."""
    return [f"{key} should be {kind} and is something else" for key, kind in sorted(broken.items())]


def forgiving(client: Redis) -> tuple[Redis, dict[str, str]]:
    """Make a client for reading. Also returns the keys of a wrong type that it met; the dict grows while the client is used."""
    found = Forgiving(client)
    return cast(Redis, found), found.broken
