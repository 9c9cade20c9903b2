"""Scripts, bound to one connection with the constants of a fleet: called at once, encoded to be sent later, or one after the other as steps.

An operation of several calls is written once, as a generator that yields them, and run by a plain and by an awaiting loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from fusion.kernel.failpoints import failpoint
from fusion.settings import Settings
from fusion.store.client.replication import Replication
from fusion.store.client.wire import pack
from fusion.store.layout import codec
from fusion.store.layout.keys import Keys
from fusion.store.layout.schema import Schema
from fusion.store.scripting.constants import FleetConstants
from fusion.store.scripting.scripts import Script, load

T = TypeVar("T")
R = TypeVar("R", covariant=True)
_DEFAULTS = FleetConstants()
#: Jobs that one call changes at most, however much each is bound to: about 10 ms of the server's one thread.
PER_CALL = 30


def to_ms(seconds: float) -> int:
    """Whole milliseconds, as the scripts count."""
    return int(seconds * 1000)


def to_seconds(ms: int) -> float | None:
    """Return milliseconds as seconds; None for -1, which means that there is none."""
    return None if ms < 0 else ms / 1000


def to_texts(values: Iterable[bytes]) -> list[str]:
    """Each value as `codec.text` has it."""
    return [codec.text(value) for value in values]


def version_of(info: Any) -> tuple[int, ...]:
    """The version that a server's INFO tells."""
    return tuple(int(part) for part in str(info["redis_version"]).split("."))


class ScriptHost:
    """Runs scripts on one Redis, with one fleet's constants in them. `server_version`: asked for at need if it is not given."""

    def __init__(
        self,
        connection: Redis,
        constants: FleetConstants = _DEFAULTS,
        *,
        server_version: tuple[int, ...] | None = None,
    ) -> None:
        self.connection = connection
        self.keys = Keys(constants.prefix)
        #: Names the set of all queues to a script.
        self._all_queues = {"queues": self.keys.queues}
        self._constants = constants
        self.server_version = server_version
        self._scripts: dict[str, Script] = {}

    @classmethod
    def of(cls, connection: Redis, settings: Settings) -> Self:
        """A host with the constants that the settings name."""
        return cls(connection, FleetConstants.of(settings))

    @property
    def duties(self) -> str:
        """The channel on which scripts tell that they have done work for the whole fleet."""
        return self.keys.duties(int(self.connection.connection_pool.connection_kwargs.get("db") or 0))

    def check_writer(self) -> None:
        """For changes that are no script. SchemaMismatch if this process is too old for the data."""
        found: Any = self.connection.hgetall(self.keys.schema)
        Schema.of(found).check_writer()

    def _to_each(self, name: str, keys: Mapping[str, str], args: Mapping[str, Any], ids: Sequence[str]) -> list[str]:
        """Make a script's calls for these jobs, some in each, and put the answers together."""
        script, answers = self._script(name), list[str]()
        for first in range(0, max(1, len(ids)), PER_CALL):
            part = ids[first : first + PER_CALL]
            answers += to_texts(script(keys, {**args, "n_jobs": len(part)}, part))
        return answers

    def _script(self, name: str) -> Script:
        script = self._scripts.get(name)
        if script is None:
            version = self._server_version() if load(name).allow_oom else ()
            script = self._scripts[name] = Script(name, self.connection, self._constants, version)
        return script

    async def _script_awaited(self, name: str) -> Script:
        """Do what `_script` does, for a client of asyncio."""
        if self.server_version is None and load(name).allow_oom:
            connection: Any = self.connection
            self.server_version = version_of(await connection.execute_command("INFO", "server"))
        return self._script(name)

    def _server_version(self) -> tuple[int, ...]:
        if self.server_version is None:
            self.server_version = version_of(self.connection.info("server"))
        return self.server_version


class Call(Protocol[R]):
    """Something to do: at once, or awaited."""

    def __call__(self) -> R:
        """Do it, and return the result."""

    async def awaited(self) -> R:
        """Do it without blocking the event loop, and return the result."""


#: An operation: a generator that yields its calls one by one. Each result is sent back into it, each error is raised in it.
Steps = Generator[Call[Any], Any, T]


def run(steps: Steps[T], connection: Any = None) -> T:
    """Make the calls of an operation, and return its result. With a `connection`, Fusion's errors are raised in place of redis-py's, see
    `fusion.store.client.errors`."""
    try:
        call = next(steps)
        while True:
            try:
                result = call()
            except BaseException as error:
                call = steps.throw(error if connection is None else _raised(error, connection))
            else:
                call = steps.send(result)
    except StopIteration as done:
        value: T = done.value
        return value


async def run_awaited(steps: Steps[T], connection: Any = None) -> T:
    """Do what `run` does, for a coroutine."""
    try:
        call = next(steps)
        while True:
            try:
                result = await call.awaited()
            except BaseException as error:
                call = steps.throw(error if connection is None else _raised(error, connection))
            else:
                call = steps.send(result)
    except StopIteration as done:
        value: T = done.value
        return value


def _raised(error: BaseException, connection: Any) -> BaseException:
    from fusion.store.client.errors import fusion_error  # here: a worker runs without it

    if isinstance(error, (RedisError, OSError)) and (told := fusion_error(error, connection)) is not None:
        told.__cause__ = error
        return told
    return error


class ScriptCall(Generic[T]):
    """One call of a script with its arguments. `understood` makes the result of the reply. With a `replication`, WAIT is sent behind it.

    It is made at once, or sent on a line of its own: `packed` is what to send, and `heard` takes the reply.
    """

    def __init__(
        self,
        host: ScriptHost,
        name: str,
        keys: Mapping[str, str],
        args: Mapping[str, Any],
        rest: Sequence[Any] = (),
        understood: Callable[[Any], T] | None = None,
        replication: Replication | None = None,
    ) -> None:
        self._host, self._name, self._keys, self._args, self._rest = host, name, keys, args, rest
        self._understood, self._replication = understood, replication
        self._encoded: bytes | None = None

    def __call__(self) -> T:
        """Make the call. Raises what redis-py raises, or SchemaMismatch."""
        send = None if self._replication is None else self._replication.send
        reply = self._host._script(self._name)(self._keys, self._args, self._rest, send)
        return reply if self._understood is None else self._understood(reply)

    async def awaited(self) -> T:
        """Make the call by a client for asyncio."""
        host = self._host
        script = await host._script_awaited(self._name)
        send = host.connection.execute_command if self._replication is None else self._replication.send_awaited
        reply = await script.awaited(self._keys, self._args, self._rest, send)
        return reply if self._understood is None else self._understood(reply)

    def packed(self) -> bytes | None:
        """Encode it for a server that knows the script; None if only redis-py knows how to."""
        failpoint(self._host._script(self._name).before)
        if self._encoded is None:
            self.encode()
        return self._encoded

    def encode(self) -> None:
        """Do the work of `packed` ahead: nothing is sent yet."""
        script = self._host._script(self._name)
        self._encoded = pack(("EVALSHA", script.sha, *script.command(self._keys, self._args, self._rest)))

    def heard(self, reply: Any) -> T:
        """Understand a reply; raise one that is an error, as `__call__` does."""
        script = self._host._script(self._name)
        if isinstance(reply, ResponseError):
            raise script.refusal(reply) from None
        if isinstance(reply, Exception):
            raise reply
        failpoint(script.after)
        return reply if self._understood is None else self._understood(reply)


class PipelineCall:
    """Commands of one round trip, which are called on `pipe`. The result is the list of replies; without `raise_on_error` an error reply stands
    in its place."""

    def __init__(self, connection: Any, *, raise_on_error: bool = True) -> None:
        self.pipe = connection.pipeline(transaction=False)
        self.pipe.raise_first_error = _raise_first
        self._raise_on_error = raise_on_error

    def __call__(self) -> list[Any]:
        """Send them."""
        found: list[Any] = self.pipe.execute(self._raise_on_error)
        return found

    async def awaited(self) -> list[Any]:
        """Send them by a client for asyncio."""
        found: list[Any] = await self.pipe.execute(self._raise_on_error)
        return found


def _raise_first(commands: Any, replies: Any) -> None:
    """Replace redis-py's function: an error is raised as it came, without the command in its text."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply


class Failed:
    """A call that was made already, and failed with this error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self) -> Any:
        """Raise the error."""
        raise self._error

    async def awaited(self) -> Any:
        """Raise the error."""
        raise self._error


class Pause:
    """Wait for some seconds between two calls."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> None:
        """Sleep."""
        time.sleep(self.seconds)

    async def awaited(self) -> None:
        """Sleep, and let the event loop go on."""
        from asyncio import sleep

        await sleep(self.seconds)
