"""Names that jobs, queues and cron entries may have."""

from __future__ import annotations

import re

from fusion.exceptions import InvalidName

_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
_DELIVERY_ID = re.compile(r"cb-\d{16,}-\d+\Z", re.ASCII)
#: What ids begin with that Fusion makes itself, and whose they are: the id alone says that such a job was made once.
_OWN_IDS = {"cron-": "cron entries' jobs", "idem-": "Idempotency-Keys", "cb-": "callbacks", "corrupt-": "broken entries"}
#: Characters of a queue's name, or of a wildcard.
MAX_NAME = 128
_QUEUE = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_ENTRY = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
_GLOB = re.compile(r"[*?\[]")

#: Its doorbell wakes a scheduler; no queue can have this name.
SCHEDULER_BELL = "_scheduler"
#: Holds the deliveries to callbacks' URLs; the courier serves it, no worker does.
CALLBACKS = "_callbacks"
#: Served FIFO from a LIST that outsiders may RPUSH a job id to.
LIST_QUEUES = frozenset({"scheduler"})


def check_job_id(job_id: object) -> str:
    """Return `job_id`, or raise InvalidName. The alphabet is rq 2.12's, which refuses others."""
    if not isinstance(job_id, str) or not _JOB_ID.match(job_id):
        raise InvalidName(f"job id {job_id!r}: use 1 to 128 of the characters A-Z a-z 0-9 _ -")
    return job_id


def check_new_job_id(job_id: object) -> str:
    """`check_job_id` for a job that a caller names: some ids are those that Fusion gives."""
    name = check_job_id(job_id)
    for prefix, whose in _OWN_IDS.items():
        if name.startswith(prefix):
            raise InvalidName(f"job id {name!r}: ids that begin with {prefix!r} are those of {whose}; choose another")
    return name


def is_delivery_id(job_id: str) -> bool:
    """True for the id of a callback's delivery: only these ids show their kind without a look at the record."""
    return bool(_DELIVERY_ID.match(job_id))


def check_queue_name(name: object) -> str:
    """Return `name`, or raise InvalidName. `failed` and names that start with `_` are Fusion's own."""
    if not isinstance(name, str) or not _QUEUE.match(name):
        raise InvalidName(f"queue name {name!r}: use 1 to 128 of the characters A-Z a-z 0-9 _ . -")
    if is_reserved(name):
        raise InvalidName(f"queue name {name!r} is reserved; choose one that is not 'failed' and does not start with '_'")
    return name


def check_entry_id(entry: object) -> str:
    """Return `entry`, the id of a cron entry, or raise InvalidName. Shorter than a job's, since those of its jobs are made of it."""
    if not isinstance(entry, str) or not _ENTRY.match(entry):
        raise InvalidName(f"cron entry id {entry!r}: use 1 to 80 of the characters A-Z a-z 0-9 _ -")
    return entry


def is_reserved(name: str) -> bool:
    """True for names of Fusion's own queues, which no wildcard matches."""
    return name == "failed" or name.startswith("_")


def is_pattern(name: str) -> bool:
    """True if a worker that is given `name` serves all queues that match it."""
    return bool(_GLOB.search(name))
