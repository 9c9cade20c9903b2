"""RQ's `Group`: jobs under one name, to look at together."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from redis import Redis

from fusion.rq.connections import given
from fusion.rq.defaults import DEFAULT_FAILURE_TTL
from fusion.rq.exceptions import NoSuchGroupError
from fusion.rq.hints import missing, refused
from fusion.rq.job import Job
from fusion.rq.queue import EnqueueData, Queue
from fusion.settings import get_settings
from fusion.store.layout.keys import Keys
from fusion.store.write.rq_store import RQStore


class Group:
    """Jobs under one name. It is gone when all of its jobs are. `fusion.Batch` also says when they have ended, and calls back."""

    def __init__(self, connection: Redis, name: str | None = None) -> None:
        self.name, self.connection = name or uuid.uuid4().hex, given(connection)

    def __repr__(self) -> str:
        return f"Group(id={self.name})"

    @property
    def key(self) -> str:
        """Its key in Redis."""
        return self.get_key(self.name)

    @property
    def _store(self) -> RQStore:
        return RQStore(self.connection, get_settings().prefix)

    def enqueue_many(self, queue: Queue, job_datas: Iterable[EnqueueData], pipeline: Any = None) -> list[Job]:
        """Enqueue jobs to a queue as members of this group. The group is written first, so no job of it is missing if this process dies."""
        if pipeline is not None:
            raise refused("pipeline=", "leave it out")
        made = queue._made(job_datas, self.name)
        self._store.add_to_group(self.name, [job.id for job in made[0] + made[1]], DEFAULT_FAILURE_TTL)
        return queue._send_many(*made)

    def get_jobs(self) -> list[Job]:
        """Return its jobs. Those that are gone are forgotten."""
        ids = self._store.group(self.name)
        found = Job.fetch_many(ids, self.connection)
        self._store.remove_from_group(self.name, [one for one, job in zip(ids, found, strict=True) if job is None])
        return [job for job in found if job is not None]

    def cleanup(self) -> None:
        """Forget the jobs that are gone."""
        self.get_jobs()

    def delete_job(self, job_id: str, pipeline: Any = None) -> None:
        """Take a job out of the group; the job itself stays."""
        if pipeline is not None:
            raise refused("pipeline=", "leave it out")
        self._store.remove_from_group(self.name, [job_id])

    @classmethod
    def create(cls, connection: Redis, name: str | None = None) -> Group:
        """Return a new group; without `name` its name is a random one."""
        return cls(connection, name)

    @classmethod
    def fetch(cls, name: str, connection: Redis) -> Group:
        """Return the group of this name. NoSuchGroupError if it has no jobs."""
        group = cls(connection, name)
        if not group._store.group(name):
            raise NoSuchGroupError(f"no group {name!r}: it never had a job, or they are gone")
        return group

    @classmethod
    def all(cls, connection: Redis) -> list[Group]:
        """Return the groups that have jobs."""
        return [cls(connection, name) for name in RQStore(given(connection), get_settings().prefix).groups()]

    @classmethod
    def get_key(cls, name: str) -> str:
        """Return the key of the group of this name."""
        return Keys(get_settings().prefix).rq_group(name)

    @classmethod
    def clean_registries(cls, connection: Redis) -> None:
        """Forget jobs that are gone, and groups without jobs."""
        for group in cls.all(connection):
            group.cleanup()


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
