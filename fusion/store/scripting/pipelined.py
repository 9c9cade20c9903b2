"""Pipelined script calls: encode, send and read are separate steps, so `enqueue_many` encodes chunk n+1 while Redis runs chunk n."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from redis import Redis
from redis.exceptions import NoScriptError, RedisError

from fusion.kernel.failpoints import failpoint
from fusion.kernel.timeouts import deferred
from fusion.store.client import maybe_executed
from fusion.store.client.adapter import client_of
from fusion.store.client.wire import Line, is_ours, pack
from fusion.store.scripting.scripts import Script

T = TypeVar("T")


class PipelinedCall(Generic[T]):
    """One call in steps: `send`, `hear` and, whatever happened, `close`.

    - With a packed `command` it is sent by `send`. Whatever goes wrong is left to the ordinary `call`, which the script takes for a
      repetition: it knows how often to try, and of servers that forgot the script.
    - Without one, `hear` makes the ordinary call.
    """

    def __init__(
        self,
        call: Callable[[Callable[..., Any] | None], Any],
        understood: Callable[[Any], T],
        client: Any = None,
        command: bytes | None = None,
    ) -> None:
        """`call`: the ordinary call, given what sends in place of the connection; `understood`: the answer's meaning."""
        self._call, self._understood, self._client, self._command = call, understood, client, command
        self._line: Line | None = None
        self._trouble: Exception | None = None

    def send(self) -> None:
        """Send the command. Raises nothing of Redis's: `hear` finds what went wrong."""
        if self._command is None:
            return
        try:
            with deferred():
                self._line = Line(self._client)
                failpoint("enqueue.before")
                self._line.send(self._command)
        except (RedisError, OSError) as error:
            self._trouble = error

    def hear(self) -> T:
        """Make sure that the call was made, and return its answer. Once; no other step raises."""
        error = self._trouble
        if self._line is not None:
            with deferred():
                answer, error = self._read(self._line)
            if error is None:
                return self._understood(answer)
        try:
            return self._understood(self._call(self._as_text if isinstance(error, NoScriptError) else None))
        except (RedisError, OSError) as later:
            if error is not None and maybe_executed.may_have_run(error):
                maybe_executed.note(later, True)
            raise

    def _read(self, line: Line) -> tuple[Any, Exception | None]:
        answer, error = None, self._trouble
        try:
            if error is None:
                answer = line.read()
                failpoint("enqueue.after")
                line.release()
                self._line = None
        except (RedisError, OSError) as found:
            error = found
        finally:
            self.close()
        return answer, error

    def close(self) -> None:
        """Close the connection if nobody will hear its answer."""
        if self._line is not None:
            self._line.drop()
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
    call: Callable[[Callable[..., Any] | None], Any],
    understood: Callable[[Any], T],
) -> PipelinedCall[T]:
    """Encode the call of a script. `call`: the ordinary one, see `PipelinedCall`; `understood`: the answer's meaning."""
    client = client_of(connection)
    command = pack(("EVALSHA", script.sha, *script.command(keys, args, rest))) if is_ours(client) else None
    return PipelinedCall(call, understood, client, command)
