"""A call of a script that leaves time: while Redis runs one chunk of `enqueue_many`, the next is encoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from redis.exceptions import RedisError

from fusion.kernel.failpoints import failpoint
from fusion.kernel.timeouts import deferred
from fusion.store.client import maybe_executed
from fusion.store.client.wire import BorrowedConnection
from fusion.store.scripting.host import Steps, run, run_awaited

T = TypeVar("T")


def _nothing() -> None:
    pass


class PipelinedCall(Generic[T]):
    """One call, sent before `meanwhile` is done, and its reply read after that. `meanwhile` raises nothing.

    - With a packed `command` that is sent first. Whatever goes wrong is left to the `ordinary` call, which the script takes for a repetition:
      it knows how often to try, and of servers that forgot the script.
    - Without one, as for a client that is not Fusion's, the ordinary call is made after `meanwhile`, and under asyncio before it.
    """

    def __init__(
        self,
        ordinary: Callable[[], Steps[T]],
        understood: Callable[[Any], T] | None = None,
        client: Any = None,
        command: bytes | None = None,
    ) -> None:
        """`understood`: the reply's meaning, if there is a command."""
        self._ordinary, self._understood, self._client, self._command = ordinary, understood, client, command
        self.meanwhile: Callable[[], None] = _nothing
        self._line: BorrowedConnection | None = None

    def __call__(self) -> T:
        """Make the call. Raises what the ordinary call does."""
        try:
            error = None if self._command is None else self._send(self._command)
            self.meanwhile()
            return self._result(error)
        finally:
            self._drop()  # nobody will hear the reply

    async def awaited(self) -> T:
        """Make the call by a client for asyncio."""
        try:
            return await run_awaited(self._ordinary())
        finally:
            self.meanwhile()

    def _send(self, command: bytes) -> Exception | None:
        try:
            with deferred():
                self._line = BorrowedConnection(self._client)
                failpoint("enqueue.before")
                self._line.send(command)
        except (RedisError, OSError) as error:
            return error
        return None

    def _result(self, error: Exception | None) -> T:
        if self._line is not None:
            with deferred():
                reply, error = self._read(self._line, error)
            if error is None and self._understood is not None:
                return self._understood(reply)
        try:
            return run(self._ordinary())
        except (RedisError, OSError) as later:
            if error is not None and maybe_executed.may_have_run(error):
                maybe_executed.note(later, True)
            raise

    def _read(self, line: BorrowedConnection, error: Exception | None) -> tuple[Any, Exception | None]:
        reply = None
        try:
            if error is None:
                reply = line.read()
                failpoint("enqueue.after")
                line.release()
                self._line = None
        except (RedisError, OSError) as found:
            error = found
        finally:
            self._drop()
        return reply, error

    def _drop(self) -> None:
        """Close the connection of a reply that was not read."""
        if self._line is not None:
            self._line.drop()
            self._line = None
