"""Every Redis key of Fusion is named here and nowhere else (the Lua side: `lua/include/keys.lua`)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fusion import defaults
from fusion.exceptions import InvalidName

_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
_QUEUE = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_GLOB = re.compile(r"[*?\[]")

#: Served FIFO from a LIST that outsiders may RPUSH a job id to.
LIST_QUEUES = frozenset({"scheduler"})


def check_job_id(job_id: object) -> str:
    """Return `job_id`, or raise InvalidName. The alphabet is rq 2.12's, which refuses others."""
    if not isinstance(job_id, str) or not _JOB_ID.match(job_id):
        raise InvalidName(f"job id {job_id!r}: use 1 to 128 of the characters A-Z a-z 0-9 _ -")
    return job_id


def check_queue_name(name: object) -> str:
    """Return `name`, or raise InvalidName. `failed` and names that start with `_` are Fusion's own."""
    if not isinstance(name, str) or not _QUEUE.match(name):
        raise InvalidName(f"queue name {name!r}: use 1 to 128 of the characters A-Z a-z 0-9 _ . -")
    if is_reserved(name):
        raise InvalidName(f"queue name {name!r} is reserved; choose one that is not 'failed' and does not start with '_'")
    return name


def is_reserved(name: str) -> bool:
    return name == "failed" or name.startswith("_")


def is_pattern(name: str) -> bool:
    return bool(_GLOB.search(name))


@dataclass(frozen=True)
class Keys:
    """Names of keys under one prefix. docs/keys.md lists them; a test compares the two."""

    prefix: str = defaults.KEY_PREFIX

    # -- jobs and queues
    def job(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}"

    def dependents(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}:dependents"

    def queue(self, name: str) -> str:
        return f"{self.prefix}queue:{name}"

    def fifo(self, name: str) -> str:
        return f"{self.prefix}fifo:{name}"

    def ready(self, name: str) -> str:
        """The ZSET a claim reads: the queue itself, or what was taken over from a LIST queue's inbox."""
        return self.fifo(name) if name in LIST_QUEUES else self.queue(name)

    def wake(self, name: str) -> str:
        return f"{self.prefix}wake:{name}"

    def wake_high(self, name: str) -> str:
        return f"{self.prefix}wake:{name}:high"

    def paused(self, name: str) -> str:
        return f"{self.prefix}paused:{name}"

    def wip(self, name: str) -> str:
        return f"{self.prefix}wip:{name}"

    def finished(self, name: str) -> str:
        return f"{self.prefix}finished:{name}"

    def deferred(self, name: str) -> str:
        return f"{self.prefix}deferred:{name}"

    def canceled(self, name: str) -> str:
        return f"{self.prefix}canceled:{name}"

    def stopped(self, name: str) -> str:
        return f"{self.prefix}stopped:{name}"

    @property
    def failed(self) -> str:
        return f"{self.prefix}queue:failed"

    @property
    def scheduled(self) -> str:
        return f"{self.prefix}scheduler:scheduled_jobs"

    @property
    def queues(self) -> str:
        return f"{self.prefix}queues"

    @property
    def dropped(self) -> str:
        return f"{self.prefix}dropped"

    @property
    def seq(self) -> str:
        return f"{self.prefix}seq"

    @property
    def seq_front(self) -> str:
        return f"{self.prefix}seq:front"

    # -- workers
    def worker(self, name: str) -> str:
        return f"{self.prefix}worker:{name}"

    def worker_jobs(self, name: str) -> str:
        return f"{self.prefix}worker:{name}:jobs"

    def pubsub(self, worker: str) -> str:
        return f"{self.prefix}pubsub:{worker}"

    @property
    def workers(self) -> str:
        return f"{self.prefix}workers"

    @property
    def suspended(self) -> str:
        return f"{self.prefix}suspended"

    @property
    def reap(self) -> str:
        return f"{self.prefix}reap"

    # -- events
    @property
    def events(self) -> str:
        return f"{self.prefix}events"

    @property
    def events_meta(self) -> str:
        return f"{self.prefix}events:meta"

    def name_of_queue(self, key: str) -> str:
        """`sms` for `rq:queue:sms`."""
        return key.removeprefix(f"{self.prefix}queue:")

    def name_of_wake(self, key: str) -> str:
        return key.removeprefix(f"{self.prefix}wake:").removesuffix(":high")

    def name_of_worker(self, key: str) -> str:
        return key.removeprefix(f"{self.prefix}worker:")
