"""Records of jobs that wait in no queue, written by plain commands: of those that ran where they were enqueued, and of drafts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis import Redis
from redis.client import Pipeline

from fusion.exceptions import DuplicateJob
from fusion.status import TERMINAL
from fusion.store.layout.codec import text, to_pairs
from fusion.store.layout.keys import Keys

#: The field of a draft's record.
DRAFT = "draft"


class PlainRecords:
    """Writes records of jobs that are in no set. They need no script, so a fake Redis without Lua has them, too.

    A draft is a job that a program stored before it was accepted; its enqueue replaces it. An accepted job that has not ended is never
    replaced: DuplicateJob.
    """

    def __init__(self, connection: Redis, prefix: str) -> None:
        self._connection, self._keys = connection, Keys(prefix)

    def write(self, job_id: str, fields: Mapping[str, Any], seconds: int) -> None:
        """Replace the record. It is kept for these seconds; -1 for ever, 0: it is removed. DuplicateJob."""
        key = self._keys.job(job_id)

        def replace(pipe: Pipeline) -> None:
            row: Any = pipe.hmget(key, "seq", "status")
            accepted, status = row
            if accepted is not None and text(status or b"") not in TERMINAL:
                raise DuplicateJob(job_id, text(status or b""))
            pipe.multi()
            pipe.delete(key)
            if seconds:
                pairs = to_pairs(fields)
                pipe.hset(key, mapping=dict(zip(pairs[::2], pairs[1::2], strict=True)))
            if seconds > 0:
                pipe.expire(key, seconds)

        self._connection.transaction(replace, key)

    def drop_draft(self, job_id: str) -> bool:
        """Remove the record of a draft; False if it is none: a job that was accepted stays."""
        key = self._keys.job(job_id)

        def drop(pipe: Pipeline) -> None:
            is_draft = pipe.hexists(key, DRAFT)
            pipe.multi()
            if is_draft:
                pipe.delete(key)

        return bool(self._connection.transaction(drop, key))
