"""What the tests of jobs that wait for others share."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from fusion.store.layout.records import NewJob
from fusion.store.write.broker import Broker
from tests.kit.hands import new


def child(job_id: str, *parents: str, **more: Any) -> NewJob:
    """A job that waits for these; `?a`: a counts as met however it ends; `~a`: it waits until a finishes."""
    return new(job_id, **{"ties": "p", "parents": json.dumps(parents), **more})


def give(broker: Broker, queue: str, *jobs: NewJob) -> None:
    broker.enqueue(queue, jobs, secrets.token_hex(6))


def settle(broker: Broker) -> None:
    """As any worker does when an answer names some."""
    while broker.release()[1] == 0:
        pass


@contextmanager
def a_fleet(broker: Broker) -> Iterator[None]:
    """Does meanwhile what workers do for jobs that wait."""
    over = threading.Event()

    def release() -> None:
        while not over.wait(0.02):
            settle(broker)

    thread = threading.Thread(target=release)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def of_kin(conn: redis.Redis) -> set[str]:
    """Keys that only jobs with parents or children have."""
    kinds = (":children", ":dependencies")
    return {raw.decode() for raw in conn.scan_iter("rq:job:*") if raw.decode().endswith(kinds)} | {
        name for name in ("rq:releasing", "rq:pinned", "rq:deferred:q") if conn.exists(name)
    }
