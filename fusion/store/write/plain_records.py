"""Records of jobs that never wait: written by plain commands, for a Redis that runs no scripts (a fake one in tests of programs)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis import Redis

from fusion.store.layout.codec import to_pairs
from fusion.store.layout.keys import Keys


class PlainRecords:
    """Writes the record of a job that ran where it was enqueued. Such a job is in no set: it has ended when it is first seen."""

    def __init__(self, connection: Redis, prefix: str) -> None:
        self._connection, self._keys = connection, Keys(prefix)

    def write(self, job_id: str, fields: Mapping[str, Any], seconds: int) -> None:
        """Replace the record. It is kept for these seconds; -1 for ever, 0: it is removed."""
        key = self._keys.job(job_id)
        pipe = self._connection.pipeline()
        pipe.delete(key)
        if seconds:
            pairs = to_pairs(fields)
            pipe.hset(key, mapping=dict(zip(pairs[::2], pairs[1::2], strict=True)))
        if seconds > 0:
            pipe.expire(key, seconds)
        pipe.execute()
