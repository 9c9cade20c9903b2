"""Records that RQ's programs show of themselves: running CronSchedulers, jobs by cron name, and groups. No state of a job is among it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from redis import Redis

from fusion.store.layout.codec import text
from fusion.store.layout.keys import Keys


class RQStore:
    """Writes and reads these by plain commands: each is one program's own entry, which expires."""

    def __init__(self, connection: Redis, prefix: str) -> None:
        self._connection, self._keys = connection, Keys(prefix)

    # -- CronSchedulers

    def cron_scheduler_key(self, name: str) -> str:
        """Return the key of a CronScheduler's entry."""
        return self._keys.rq_cron_scheduler(name)

    def enter(self, name: str, seconds: float) -> bool:
        """Enter a CronScheduler into the list; False if its name is there. Those that were silent for this time, as killed ones are, leave it."""
        now = time.time()
        pipe = self._connection.pipeline()
        pipe.zremrangebyscore(self._keys.rq_cron_schedulers, 0, now - seconds)
        pipe.zadd(self._keys.rq_cron_schedulers, {name: now}, nx=True)
        return bool(pipe.execute()[1])

    def leave(self, name: str) -> bool:
        """Remove it from the list; False if it was not there."""
        return bool(self._connection.zrem(self._keys.rq_cron_schedulers, name))

    def write_scheduler(self, name: str, fields: Mapping[Any, Any], seconds: int) -> None:
        """Write its entry, which expires."""
        pipe = self._connection.pipeline()
        pipe.hset(self._keys.rq_cron_scheduler(name), mapping=dict(fields))
        pipe.expire(self._keys.rq_cron_scheduler(name), seconds)
        pipe.execute()

    def beat(self, name: str, seconds: int) -> bool:
        """Renew its place in the list and its entry; False if the entry is gone."""
        pipe = self._connection.pipeline()
        pipe.zadd(self._keys.rq_cron_schedulers, {name: time.time()})
        pipe.expire(self._keys.rq_cron_scheduler(name), seconds)
        _, kept = pipe.execute()
        return bool(kept)

    def scheduler(self, name: str) -> dict[str, str]:
        """Read its entry; empty if there is none."""
        row: Any = self._connection.hgetall(self._keys.rq_cron_scheduler(name))
        return {text(field): text(value) for field, value in row.items()}

    def schedulers(self) -> list[str]:
        """List the names, the one that was silent for longest first."""
        found: Any = self._connection.zrange(self._keys.rq_cron_schedulers, 0, -1)
        return [text(one) for one in found]

    def last_beat(self, name: str) -> float | None:
        """Read when it last renewed its place, in Unix seconds; None if it is not in the list."""
        found: Any = self._connection.zscore(self._keys.rq_cron_schedulers, name)
        return None if found is None else float(found)

    def forget_schedulers(self, seconds: float) -> int:
        """Remove those that were silent for that long; return how many."""
        upto = time.time() - seconds
        return int(self._connection.zremrangebyscore(self._keys.rq_cron_schedulers, 0, upto))

    # -- jobs by the name of their cron job

    def cron_jobs_key(self, name: str) -> str:
        """Return the key of the jobs of a cron job."""
        return self._keys.rq_cron_job(name)

    def note_cron_job(self, name: str, job_id: str, at: float, most: int, seconds: int) -> None:
        """Note a job of a cron job; the newest `most` are kept, for these seconds after the last."""
        pipe = self._connection.pipeline()
        pipe.zadd(self._keys.rq_cron_job(name), {job_id: at})
        pipe.zremrangebyrank(self._keys.rq_cron_job(name), 0, -(most + 1))
        pipe.expire(self._keys.rq_cron_job(name), seconds)
        pipe.zadd(self._keys.rq_cron_jobs, {name: at})
        pipe.expire(self._keys.rq_cron_jobs, seconds)
        pipe.execute()

    def note_cron_name(self, name: str, at: float | None, seconds: int) -> None:
        """Note when a cron job enqueued something; None: now."""
        pipe = self._connection.pipeline()
        pipe.zadd(self._keys.rq_cron_jobs, {name: at or time.time()})
        pipe.expire(self._keys.rq_cron_jobs, seconds)
        pipe.execute()

    def cron_job_ids(self, name: str, start: int, end: int) -> list[str]:
        """List the ids of the jobs of a cron job, the newest first."""
        found: Any = self._connection.zrange(self._keys.rq_cron_job(name), start, end, desc=True)
        return [text(one) for one in found]

    def cron_names(self, seconds: float | None) -> list[str]:
        """List the names of cron jobs, that of the oldest enqueue first. `seconds`: first forget those that enqueued nothing for that long."""
        if seconds is not None:
            self._connection.zremrangebyscore(self._keys.rq_cron_jobs, 0, time.time() - seconds)
        found: Any = self._connection.zrange(self._keys.rq_cron_jobs, 0, -1)
        return [text(one) for one in found]

    # -- groups

    def add_to_group(self, group: str, job_ids: Iterable[str], seconds: int) -> None:
        """Add jobs to a group, which is forgotten these seconds after the last one came."""
        ids = list(job_ids)
        if ids:
            pipe = self._connection.pipeline()
            pipe.sadd(self._keys.rq_group(group), *ids)
            pipe.expire(self._keys.rq_group(group), seconds)
            pipe.sadd(self._keys.rq_groups, group)
            pipe.execute()

    def group(self, group: str) -> list[str]:
        """List the ids of a group's jobs."""
        found: Any = self._connection.smembers(self._keys.rq_group(group))
        return sorted(text(one) for one in found)

    def remove_from_group(self, group: str, job_ids: Iterable[str]) -> None:
        """Remove jobs from a group. One without jobs is gone."""
        ids = list(job_ids)
        if ids:
            self._connection.srem(self._keys.rq_group(group), *ids)

    def groups(self) -> list[str]:
        """List the groups that have jobs, and forget the others."""
        found: Any = self._connection.smembers(self._keys.rq_groups)
        names = sorted(text(one) for one in found)
        pipe = self._connection.pipeline()
        for name in names:
            pipe.exists(self._keys.rq_group(name))
        there = pipe.execute()
        if gone := [name for name, here in zip(names, there, strict=True) if not here]:
            self._connection.srem(self._keys.rq_groups, *gone)
        return [name for name, here in zip(names, there, strict=True) if here]
