"""Reads jobs for coroutines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis

from fusion.kernel import defaults
from fusion.settings import Settings
from fusion.store.client.async_adapter import AsyncAsking
from fusion.store.layout import codec
from fusion.store.layout.compact import expand
from fusion.store.layout.keys import Keys
from fusion.store.read.kin_inspector import SOME


class AsyncInspector:
    """The part of the Inspector that a coroutine needs. Raises redis-py's errors as they come."""

    def __init__(self, connection: Redis, *, prefix: str = defaults.KEY_PREFIX) -> None:
        self._connection = AsyncAsking(connection)
        self._keys = Keys(prefix)

    @classmethod
    def of(cls, connection: Redis, settings: Settings) -> AsyncInspector:
        """Make an inspector with the prefix that the settings name."""
        return cls(connection, prefix=settings.prefix)

    async def job(self, job_id: str) -> dict[str, bytes]:
        """Read all fields of a job in their full form, however they are stored; empty if there is no such job."""
        row: Any = await self._connection.execute_command("HGETALL", self._keys.job(job_id))
        return expand({codec.text(name): value for name, value in row.items()})

    async def statuses(self, job_ids: Sequence[str]) -> list[str | None]:
        """Do what `Inspector.statuses` does."""
        pipe = self._connection.pipeline()
        for one in job_ids:
            pipe.execute_command("HGET", self._keys.job(one), "status")
        return [None if row is None else codec.text(row) for row in await pipe.execute()]

    async def all_children(self, job_ids: Sequence[str]) -> list[list[str]]:
        """Do what `Inspector.all_children` does, in one go."""
        pipe = self._connection.pipeline()
        for one in job_ids:
            pipe.execute_command("ZRANGE", self._keys.children(one), 0, SOME - 1)
            pipe.execute_command("SMEMBERS", self._keys.dependents(one))
        rows = await pipe.execute()
        found = [[codec.text(child) for child in row] for row in rows]
        for one, children in zip(job_ids, rows[::2], strict=True):
            cursor: Any = b"0"
            while len(children) >= SOME and cursor is not None:
                following, members = await self._connection.execute_command(
                    "ZSCAN", self._keys.children(one), cursor, "COUNT", SOME
                )
                found.append([codec.text(member[0] if isinstance(member, (tuple, list)) else member) for member in members])
                cursor = following if int(following) else None
        return found

    async def status(self, job_id: str) -> str | None:
        """Read a job's status; None if there is no such job."""
        found: Any = await self._connection.execute_command("HGET", self._keys.job(job_id), "status")
        return None if found is None else codec.text(found)
