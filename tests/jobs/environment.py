"""Tasks that look at what they can see of Fusion's secrets."""

from __future__ import annotations

import os
import resource

from fusion import Queue


def secrets() -> dict[str, str]:
    """By their variables, the process's own and the one it was started with."""
    with open("/proc/self/environ", "rb") as file:
        began = dict(item.partition(b"=")[::2] for item in file.read().split(b"\0"))
    names = ("FUSION_REDIS_URL", "FUSION_CALLBACK_SECRETS", "FUSION_SECRET_KEYS", "FUSION_ELASTICSEARCH_PASSWORD")
    assert {name: os.environ.get(name) for name in names} == {
        name: began[name.encode()].decode() if name.encode() in began else None for name in names
    }
    return {name: os.environ[name] for name in names if name in os.environ}


def enqueues() -> str:
    return str(Queue("e").enqueue("tests.jobs.basic.add", 1, 2, job_id="inner").id)


def core_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_CORE)[0]
