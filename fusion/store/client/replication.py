"""An enqueue that waits for replicas. It sends the script and WAIT in one round trip, since WAIT counts replicas for its own connection."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

from redis.exceptions import RedisError, ResponseError

from fusion.exceptions import NotReplicated
from fusion.store.client.classify import one_line
from fusion.store.layout.records import NewJob, Replicas

#: The share of a client's reply timeout for which one WAIT may block.
_PATIENCE = 0.5
#: Most ids that a message names.
_NAMED = 3


class Replication:
    """The replication of one enqueue; `connection` is a client of either kind. Repeat the call until `done`: a resend only goes on waiting."""

    def __init__(self, jobs: Sequence[NewJob], replicas: Replicas, connection: Any) -> None:
        self._jobs, self._replicas, self._connection = jobs, replicas, connection
        self._deadline = monotonic() + replicas.timeout
        limit = connection.connection_pool.connection_kwargs.get("socket_timeout")
        # a client that timed out would not learn how many acknowledged
        self._longest = replicas.timeout if limit is None else float(limit) * _PATIENCE
        self._waited: Any = 0

    def pipeline(self, command: Sequence[Any]) -> Any:
        """Make a pipeline of the command and WAIT; execute it, then pass the replies to `heard`."""
        pipe = self._connection.pipeline(transaction=False)
        pipe.raise_first_error = _raise_of_the_script
        pipe.execute_command(*command)
        left = min(self._longest, self._deadline - monotonic())
        pipe.execute_command("WAIT", self._replicas.count, max(1, int(left * 1000)))
        return pipe

    def heard(self, replies: Sequence[Any]) -> Any:
        """Note how many replicas acknowledged, and return the script's reply."""
        answer, self._waited = replies
        return answer

    def send(self, *command: Any) -> Any:
        """Send a command and WAIT in one round trip, for a Script of a synchronous client; returns the script's reply."""
        return self.heard(self.pipeline(command).execute())

    async def send_awaited(self, *command: Any) -> Any:
        """Do what `send` does, for a client of asyncio."""
        return self.heard(await self.pipeline(command).execute())

    def done(self) -> bool:
        """Return True if enough replicas acknowledged, False while they still may. NotReplicated if they will not."""
        trouble = self._waited if isinstance(self._waited, RedisError) else None
        count = 0 if trouble else int(self._waited)
        if count >= self._replicas.count:
            return True
        if trouble is None and monotonic() < self._deadline:
            return False
        ids = [job.id for job in self._jobs]
        error = NotReplicated(_told(ids, self._replicas, count, trouble))
        error.job_ids, error.acknowledged = tuple(ids), count
        raise error from trouble


def _told(ids: Sequence[str], replicas: Replicas, count: int, trouble: RedisError | None) -> str:
    names = ", ".join(ids[:_NAMED]) + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")
    what = f"job {names} is" if len(ids) == 1 else f"jobs {names} are"
    how = one_line(trouble) if trouble else f"{count} of {replicas.count} replicas acknowledged within {replicas.timeout:g} s"
    return (
        f"{what} on the primary, but {how}. Whether a failover keeps that is unknown; the same call is safe to repeat (repeat())"
    )


def _raise_of_the_script(commands: Any, response: Any) -> None:
    """Replaces redis-py's check. An error of WAIT does not change what the script did, so it is not raised. The script's own error is raised
    as it came, without the arguments that were sent."""
    if isinstance(response[0], ResponseError):
        raise response[0]
