"""A connection for those who look: a key of a wrong type reads as if it were empty, and is remembered, so that it hides nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from redis import Redis
from redis.exceptions import ResponseError

from fusion.store.client.adapter import Asking, client_of
from fusion.store.layout import codec

#: What a command answers for a key that does not exist.
_EMPTY: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "SMEMBERS": lambda command: set(),
    "HGETALL": lambda command: {},
    "HMGET": lambda command: [None] * len(command[2:]),
    "XPENDING": lambda command: {"pending": 0, "min": None, "max": None, "consumers": []},
    **dict.fromkeys(("ZSCAN", "SSCAN", "HSCAN"), lambda command: (0, [])),
    **dict.fromkeys(("ZCARD", "ZCOUNT", "XLEN", "LLEN", "SCARD", "HLEN", "HSTRLEN"), lambda command: 0),
    **dict.fromkeys(("ZRANGE", "LRANGE", "XRANGE", "XREVRANGE", "XINFO GROUPS", "HKEYS", "ZREVRANGE"), lambda command: []),
    **dict.fromkeys(("HGET", "GET", "ZSCORE", "ZRANK", "ZREVRANK", "LPOS"), lambda command: None),
}
#: By the first letter of a command.
_KINDS = {"S": "a set", "Z": "a sorted set", "H": "a hash", "L": "a list", "X": "a stream", "G": "a string"}


class Forgiving(Asking):
    """Asks through a client. `broken`: keys that were of a wrong type, with the type that they should be of."""

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

    def pipeline(self, transaction: bool = False) -> Any:
        """Make a pipeline in which a key of a wrong type reads as empty, or as its error where errors are not to be raised."""
        pipe = super().pipeline(transaction)
        add, execute, asked = pipe.execute_command, pipe.execute, list[tuple[Any, ...]]()

        def noted(*command: Any, **options: Any) -> Any:
            asked.append(command)
            return add(*command, **options)

        pipe.execute_command = noted
        pipe.execute = lambda raise_on_error=True: self._answers(asked, execute(False), raise_on_error)
        return pipe

    def _answers(self, asked: list[tuple[Any, ...]], replies: list[Any], raise_on_error: bool) -> list[Any]:
        for i, (command, reply) in enumerate(zip(asked, replies, strict=True)):
            broken = self._note(command, reply)
            if broken and raise_on_error:
                replies[i] = _EMPTY[command[0]](command)
            elif raise_on_error and isinstance(reply, Exception):
                raise reply
        return replies

    def _note(self, command: tuple[Any, ...], reply: object) -> bool:
        """Remember a key of a wrong type; False for any other reply."""
        wrong = isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE") and command[0] in _EMPTY
        if wrong:
            self.broken[codec.text(command[1])] = _KINDS[command[0][0]]
        return wrong


def in_words(broken: Mapping[str, str]) -> list[str]:
    """Tell of each key in a sentence."""
    return [f"{key} should be {kind} and is something else" for key, kind in sorted(broken.items())]


def forgiving(client: Redis) -> tuple[Redis, dict[str, str]]:
    """Make a client to look through; returns with it the keys of a wrong type that were met, which grow as it is used."""
    found = Forgiving(client)
    return cast(Redis, found), found.broken
