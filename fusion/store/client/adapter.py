"""A client as Fusion uses it, whoever made it: it answers with bytes, is sent UTF-8, and a call that is cut short harms no later one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from redis import Redis
from redis.client import NEVER_DECODE
from redis.commands import CoreCommands
from redis.exceptions import RedisError

from fusion.kernel.timeouts import deferred
from fusion.store.client.sockets import CleanPool


def asking(client: Redis) -> Redis:
    """Make a client that asks through this one, by its pool, its retries and its tracer; one that does so already is returned as it is."""
    return client if isinstance(client, Asking) else cast(Redis, Asking(client))


def client_of(connection: Redis) -> Redis:
    """Return the client itself, where `asking` stands around it."""
    return cast(Redis, connection.client) if isinstance(connection, Asking) else connection


def words(command: tuple[Any, ...]) -> list[Any]:
    """Make of a command what any client sends alike. Its texts are encoded here, as another may have another encoding; so are ints, amid which
    hiredis 3.5.0 can't be interrupted. The name stays what it is: redis-py goes by it."""
    name, *rest = command
    return [name, *(word.encode() if type(word) is str else b"%d" % word if type(word) is int else word for word in rest)]


def undecoded(client: Any) -> dict[str, Any]:
    """Return the option with which each command of the client is answered in bytes."""
    return {NEVER_DECODE: True} if client.get_encoder().decode_responses else {}


def plain(pipe: Any, options: dict[str, Any]) -> Any:
    """Have a pipeline send each command by `words` and with the options. Without MULTI: EXEC's answer redis-py reads without options."""
    add = pipe.execute_command
    pipe.execute_command = lambda *command, **given: add(*words(command), **given, **options)
    return pipe


def batch(connection: Redis, ask: Callable[[Any], object], *, raise_on_error: bool = True) -> list[Any]:
    """Send in one round trip the commands that `ask` calls on a pipeline, and return their replies in order. Raises redis-py's errors;
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
        return self._whole(lambda: self.client.execute_command(*words(command), **options, **self._options))

    def pipeline(self, transaction: bool = False) -> Any:
        """Make a pipeline without MULTI, which sends and answers alike."""
        assert not transaction
        pipe = plain(self.client.pipeline(transaction=False), self._options)
        execute = pipe.execute
        pipe.execute = lambda raise_on_error=True: self._whole(lambda: execute(raise_on_error))
        return pipe

    def _whole(self, call: Callable[[], Any]) -> Any:
        with deferred():
            try:
                return call()
            except RedisError:
                raise
            except BaseException:
                self._disown()
                raise

    def _disown(self) -> None:
        """Close all connections that nobody uses now: redis-py does not tell which one was left amid an exchange."""
        pool = self.client.connection_pool
        if self.client.connection is not None:  # its pipelines take theirs from the pool all the same
            self.client.connection.disconnect()
        if not isinstance(pool, CleanPool):  # that one knew
            try:
                pool.disconnect(inuse_connections=False)
            except TypeError:  # some pools know only all of them
                pool.disconnect()
