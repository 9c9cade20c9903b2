"""A script encoded, sent and heard one after the other: between them whoever enqueues many works on others, on the core that Redis does not use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from redis import Redis
from redis.exceptions import NoScriptError, RedisError

from fusion.failpoints import failpoint
from fusion.store import doubt
from fusion.store.scripts import Script
from fusion.store.wire import is_ours, pack


def ready(
    script: Script, connection: Redis, keys: Mapping[str, str], args: Mapping[str, Any], rest: Sequence[Any]
) -> Callable[[], Callable[[], Any]]:
    """Encode it, and return what sends it. That returns what hears and returns the answer, and must be called. Whatever goes wrong is left to
    an ordinary call, which the script must take for a repetition: it knows how often to try, and of servers that forgot the script."""
    command = pack(("EVALSHA", script.sha, *script.command(keys, args, rest))) if is_ours(connection) else None
    if command is None:
        return lambda: lambda: script(keys, args, rest)
    return lambda: _send(script, connection, command, lambda send: script(keys, args, rest, send))


def _send(
    script: Script, connection: Redis, command: bytes, call: Callable[[Callable[..., Any] | None], Any]
) -> Callable[[], Any]:
    pool, client = connection.connection_pool, cast(Any, connection)
    line: Any = None
    trouble: Exception | None = None
    try:
        line = pool.get_connection()
        failpoint("enqueue.before")
        line.send_packed_command([command])
    except (RedisError, OSError) as error:
        trouble = error

    def as_text(name: str, *command: Any) -> Any:
        if name == "EVALSHA":
            raise NoScriptError  # as the server has said already
        return client.execute_command(name, *command)

    def hear() -> Any:
        answer, error = None, trouble
        try:
            if error is None:
                answer = line.read_response()
                failpoint("enqueue.after")
        except (RedisError, OSError) as found:
            error = found
        finally:
            if line is not None:
                if error is not None or answer is None:
                    line.disconnect()
                pool.release(line)
        if error is None:
            return answer
        try:
            return call(as_text if isinstance(error, NoScriptError) else None)
        except (RedisError, OSError) as later:
            if doubt.may_have_run(error):
                doubt.note(later, True)
            raise

    return hear
