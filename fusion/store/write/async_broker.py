"""The Broker's `enqueue` and the settings of a queue, for coroutines. The script, its arguments and its replies are those of the synchronous
Broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ResponseError

from fusion.exceptions import DataTooOld
from fusion.kernel.failpoints import failpoint
from fusion.settings import Settings
from fusion.store.client.async_adapter import AsyncAsking
from fusion.store.client.replication import Replication
from fusion.store.layout import codec, schema
from fusion.store.layout.gates import gate_words, read_gate
from fusion.store.layout.pauses import Pause, pause_words, read_pause
from fusion.store.layout.records import NewJob, Replicas, Room
from fusion.store.scripting.host import ScriptHost, version_of
from fusion.store.write import enqueue_codec
from fusion.store.write.graph_broker import parents_words, part_words, refuse, release_words

_BROKER = "_fusion_broker"


def _sender(replication: Replication) -> Callable[..., Awaitable[Any]]:
    async def send(*command: Any) -> Any:
        return replication.heard(await replication.pipeline(command).execute())

    return send


class AsyncBroker(ScriptHost):
    """The part of the Broker that a coroutine needs."""

    connection: Any
    #: As in the Broker.
    _layout = schema.VERSION

    async def enqueue(
        self, queue: str, jobs: Sequence[NewJob], replicas: Replicas | None = None, room: Room | None = None
    ) -> str:
        """Enqueue as `Broker.enqueue` does, with its errors."""
        if replicas is None:
            return self._accepted(await self._enqueue(queue, jobs, room, self.connection.execute_command), queue)
        replication = Replication(jobs, replicas, self.connection)
        send = _sender(replication)
        while True:
            at = self._accepted(await self._enqueue(queue, jobs, room, send), queue)
            if replication.done():
                return at

    async def _enqueue(self, queue: str, jobs: Sequence[NewJob], room: Room | None, send: Callable[..., Awaitable[Any]]) -> Any:
        while True:
            layout = self._layout  # another coroutine may learn a newer layout while this call waits
            try:
                return await self._call("enqueue", *enqueue_codec.arguments(queue, jobs, "", layout, room), send)
            except DataTooOld as error:
                if error.version >= layout:
                    raise
                self._layout = error.version

    def _accepted(self, answer: Any, queue: str) -> str:
        at = enqueue_codec.accepted(answer, queue)
        self._layout = int(answer[2])
        return at

    async def enqueue_part(self, queue: str, jobs: Sequence[NewJob], token: str, nth: int, room: Room | None = None) -> str:
        """Accept a part of a graph as `Broker.enqueue_part` does, with its errors."""
        words = part_words(queue, jobs, token, nth, room)
        return enqueue_codec.accepted(await self._call("enqueue", *words, self.connection.execute_command), queue)

    async def add_parents(self, job_id: str, token: str, nth: int, parents: Sequence[str]) -> None:
        """Make a job wait for more jobs, as `Broker.add_parents` does, with its errors."""
        refuse(await self._call("add_parents", *parents_words(job_id, token, nth, parents), self.connection.execute_command))

    async def release_graph(self, token: str, queue: str, first: NewJob, replicas: Replicas | None = None) -> None:
        """Start a graph, as `Broker.release_graph` does, with its errors."""
        words = release_words(token, queue, first)
        replication = None if replicas is None else Replication([first], replicas, self.connection)
        send = self.connection.execute_command if replication is None else _sender(replication)
        while True:
            refuse(await self._call("release_graph", words, [], send))
            if replication is None or replication.done():
                return

    async def drop_graph(self, token: str) -> None:
        """Drop a graph, as `Broker.drop_graph` does."""
        await self._call("drop_graph", {"token": token}, [], self.connection.execute_command)

    async def cancel(self, job_id: str) -> str:
        """Cancel a job as `Broker.cancel` does, with its answers."""
        return await self._of_job("cancel", job_id)

    async def stop(self, job_id: str) -> str:
        """Stop a job as `Broker.stop` does, with its answers."""
        return await self._of_job("stop", job_id)

    async def _of_job(self, name: str, job_id: str) -> str:
        await self._learn_version()
        keys = {"job": self.keys.job(job_id)}
        return codec.text(await self._call(name, {"id": job_id, "operation": ""}, [], self.connection.execute_command, keys))

    async def set_gate(self, queue: str, values: Mapping[str, str | int | None]) -> dict[str, str]:
        """Set values of a queue as `Broker.set_gate` does, with its errors."""
        await self._learn_version()
        return read_gate(await self._call("set_gate", *gate_words(queue, values), self.connection.execute_command))

    async def pause(self, queue: str, seconds: float | None = None, *, by: str = "", reason: str = "") -> None:
        """Pause a queue as `Broker.pause` does, with its errors."""
        await self._learn_version()
        await self._call("pause", *pause_words(queue, seconds, by, reason), self.connection.execute_command)

    async def unpause(self, queue: str) -> Pause | None:
        """End a queue's pause as `Broker.unpause` does, with its errors."""
        was = await self._call("unpause", {"queue": queue}, [], self.connection.execute_command)
        return read_pause(*was) if was else None

    async def _learn_version(self) -> None:
        """Learn the server's version: a script that may write on a full server differs by version."""
        if self.server_version is None:
            found = await self.connection.execute_command("INFO", "server")
            self.server_version = version_of(found)

    async def _call(
        self,
        name: str,
        args: dict[str, Any],
        rest: list[Any],
        send: Callable[..., Awaitable[Any]],
        keys: Mapping[str, str] | None = None,
    ) -> Any:
        """Make the call as a Script does."""
        script = self._script(name)
        command = script.command(keys or {"queues": self.keys.queues}, args, rest)
        failpoint(f"{name}.before")
        try:
            try:
                answer = await send("EVALSHA", script.sha, *command)
            except NoScriptError:
                answer = await send("EVAL", script.text, *command)
        except ResponseError as error:
            if (refusal := script.refusal(error)) is not error:
                raise refusal from None
            raise
        failpoint(f"{name}.after")
        return answer


def async_broker_of(connection: Redis, settings: Settings) -> AsyncBroker:
    """Return the connection's AsyncBroker; a new one is made only if the settings change. Raises redis-py's errors."""
    kept: tuple[object, AsyncBroker] | None = vars(connection).get(_BROKER)
    if kept is None or kept[0] is not settings:
        kept = vars(connection)[_BROKER] = settings, AsyncBroker.of(cast(Any, AsyncAsking(connection)), settings)
    return kept[1]
