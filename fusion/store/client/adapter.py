"""Adapts any redis-py client to Fusion: replies are bytes, texts are sent as UTF-8, and a call that is cut short harms no later one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from redis import Redis
from redis.client import NEVER_DECODE
from redis.commands import CoreCommands
from redis.exceptions import RedisError

from fusion.kernel.timeouts import deferred
from fusion.store.client.sockets import CleanPool


def asking(client: Redis) -> Redis:
    """Make a client that sends through this one, by its pool, its retries and its tracer. A client that does so already is returned as it is."""
    return client if isinstance(client, Asking) else cast(Redis, Asking(client))


def client_of(connection: Redis) -> Redis:
    """Return the client itself, if `asking` has wrapped it."""
    return cast(Redis, connection.client) if isinstance(connection, Asking) else connection


def words(command: tuple[Any, ...]) -> list[Any]:
    """Convert a command to words that any client sends alike. Texts are encoded here, since clients may use other encodings. So are ints, as
    hiredis 3.5.0 can't be interrupted while it encodes one. The command's name stays as it is: redis-py decides by it."""
    found = list(command)
    for nth, word in enumerate(found):
        if type(word) is str and nth:
            found[nth] = word.encode()
        elif type(word) is int:
            found[nth] = b"%d" % word
    return found


def undecoded(client: Any) -> dict[str, Any]:
    """Return the option that makes the client reply in bytes."""
    return {NEVER_DECODE: True} if client.get_encoder().decode_responses else {}


def batch(connection: Redis, ask: Callable[[Any], object], *, raise_on_error: bool = True) -> list[Any]:
    """Send the commands that `ask` calls on a pipeline in one round trip, and return their replies in order. Raises redis-py's errors;
    without `raise_on_error`, an error reply stands in its place."""
    pipe = connection.pipeline(transaction=False)
    ask(pipe)
    return pipe.execute(raise_on_error)


_Commands: Any = CoreCommands


class Asking(_Commands):  # type: ignore[misc]
    """Sends each command of redis-py through another client."""

    def __init__(self, client: Redis) -> None:
        self.client: Any = client
        self._options = undecoded(client)

    @property
    def connection_pool(self) -> Any:
        """The pool of the client."""
        return self.client.connection_pool

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send one command; every method for a command ends up here."""
        return self._whole(self.client.execute_command, *words(command), **options, **self._options)

    def pipeline(self, transaction: bool = False) -> Any:
        """Make a pipeline without MULTI, since redis-py reads the reply to EXEC without options. It sends and replies in the same way."""
        assert not transaction
        pipe = self.client.pipeline(transaction=False)
        commands: list[tuple[Any, ...]] = []
        add = pipe.execute_command

        def added(*command: Any, **options: Any) -> Any:
            commands.append(command)
            return add(*words(command), **options, **self._options)

        pipe.execute_command = added
        pipe.execute = partial(self._execute, pipe.execute, commands)
        return pipe

    def _execute(self, execute: Callable[[bool], Any], commands: list[tuple[Any, ...]], raise_on_error: bool = True) -> Any:
        """Send the commands of a pipeline, and return its replies."""
        return self._whole(execute, raise_on_error)

    def _whole(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        with deferred():
            try:
                return call(*args, **options)
            except RedisError:
                raise
            except BaseException:
                self._disown()
                raise

    def _disown(self) -> None:
        """Close all connections that are not in use: redis-py does not tell which one was left in the middle of an exchange."""
        pool = self.client.connection_pool
        if self.client.connection is not None:  # its pipelines take theirs from the pool all the same
            self.client.connection.disconnect()
        if not isinstance(pool, CleanPool):  # a CleanPool closed it already
            try:
                pool.disconnect(inuse_connections=False)
            except TypeError:  # some pools can only close all of them
                pool.disconnect()
