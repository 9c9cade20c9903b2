"""A script encoded, sent and heard one after the other: between them whoever enqueues many works on others, on the core that Redis does not use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from redis import Redis
from redis.exceptions import NoScriptError, RedisError

from fusion.kernel.failpoints import failpoint
from fusion.kernel.timeouts import deferred
from fusion.store.client import maybe_executed
from fusion.store.client.adapter import client_of
from fusion.store.client.wire import is_ours, pack
from fusion.store.scripting.scripts import Script

T = TypeVar("T")


class Later(Generic[T]):
    """A call that is made when it is heard."""

    def __init__(self, hear: Callable[[], T]) -> None:
        #: Makes sure that it was made, and returns the answer. Once; nothing else raises.
        self.hear = hear

    def send(self) -> None:
        """Begin."""

    def close(self) -> None:
        """At the end, whatever happened since `send`."""


class Ahead(Later[T]):
    """One that is made when it is sent. Whatever goes wrong is left to an ordinary call, which the script must take for a repetition: it
    knows how often to try, and of servers that forgot the script."""

    def __init__(
        self, client: Any, command: bytes, call: Callable[[Callable[..., Any] | None], Any], understood: Callable[[Any], T]
    ) -> None:
        super().__init__(lambda: understood(self._hear()))
        self._client, self._command, self._call = client, command, call
        self._line: Any = None
        self._trouble: Exception | None = None

    def send(self) -> None:
        try:
            with deferred():
                self._line = self._client.connection_pool.get_connection()
                failpoint("enqueue.before")
                self._line.send_packed_command([self._command])
        except (RedisError, OSError) as error:
            self._trouble = error

    def _hear(self) -> Any:
        with deferred():
            answer, error = self._read()
        if error is None:
            return answer
        try:
            return self._call(self._as_text if isinstance(error, NoScriptError) else None)
        except (RedisError, OSError) as later:
            if maybe_executed.may_have_run(error):
                maybe_executed.note(later, True)
            raise

    def _read(self) -> tuple[Any, Exception | None]:
        answer, error = None, self._trouble
        try:
            if error is None:
                answer = self._line.read_response()
                failpoint("enqueue.after")
                self._client.connection_pool.release(self._line)
                self._line = None
        except (RedisError, OSError) as found:
            error = found
        finally:
            self.close()
        return answer, error

    def close(self) -> None:
        """Nobody will hear the answer, if there is to be one: the connection on which it comes must not serve another call."""
        if self._line is not None:
            self._line.disconnect()
            self._client.connection_pool.release(self._line)
            self._line = None

    def _as_text(self, name: str, *command: Any) -> Any:
        if name == "EVALSHA":
            raise NoScriptError  # as the server has said already
        return self._client.execute_command(name, *command)


def ready(
    script: Script,
    connection: Redis,
    keys: Mapping[str, str],
    args: Mapping[str, Any],
    rest: Sequence[Any],
    understood: Callable[[Any], T],
) -> Later[T]:
    """The call of a script, encoded. `understood`: what its answer means."""
    client = client_of(connection)
    command = pack(("EVALSHA", script.sha, *script.command(keys, args, rest))) if is_ours(client) else None
    if command is None:
        return Later(lambda: understood(script(keys, args, rest)))
    return Ahead(client, command, lambda send: script(keys, args, rest, send), understood)
