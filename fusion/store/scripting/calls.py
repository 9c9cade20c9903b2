"""A call of a script, made ready: to be made at once, or sent on a line of its own and heard of later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from redis.exceptions import ResponseError

from fusion.kernel.failpoints import failpoint
from fusion.store.client.wire import pack
from fusion.store.scripting.scripts import Script

T = TypeVar("T")


class ScriptCall(Generic[T]):
    """One call with its arguments. `understood`: the answer's meaning.

    Called, it is made at once. In steps, `packed` is what to send, and `heard` takes the answer.
    """

    def __init__(
        self,
        script: Script,
        keys: Mapping[str, str],
        args: Mapping[str, Any],
        rest: Sequence[Any],
        understood: Callable[[Any], T],
    ) -> None:
        self._script, self._keys, self._args, self._rest, self._understood = script, keys, args, rest, understood
        self._encoded: bytes | None = None

    def __call__(self) -> T:
        """Make the call. Raises what redis-py raises, or SchemaMismatch."""
        return self._understood(self._script(self._keys, self._args, self._rest))

    def packed(self) -> bytes | None:
        """Encode it for a server that knows the script; None if only redis-py knows how to."""
        failpoint(self._script.before)
        if self._encoded is None:
            self.encode()
        return self._encoded

    def encode(self) -> None:
        """Do the work of `packed` ahead: nothing is sent yet."""
        self._encoded = pack(("EVALSHA", self._script.sha, *self._script.command(self._keys, self._args, self._rest)))

    def heard(self, reply: Any) -> T:
        """Understand a reply; raise one that is an error, as `__call__` does."""
        if isinstance(reply, ResponseError):
            raise self._script.refusal(reply) from None
        if isinstance(reply, Exception):
            raise reply
        failpoint(self._script.after)
        return self._understood(reply)
