"""The checker of invariant I1: every accepted job is in exactly one state's set, and its hash agrees."""

from __future__ import annotations

from collections.abc import Iterable

import redis

from fusion.store.keys import LIST_QUEUES, Keys


def memberships(conn: redis.Redis, keys: Keys | None = None) -> dict[str, list[str]]:
    """For each job id the states whose sets hold it (a LIST queue's inbox counts as queued)."""
    keys = keys or Keys()
    found: dict[str, list[str]] = {}

    def add(status: str, members: Iterable[bytes]) -> None:
        for member in members:
            found.setdefault(member.decode(), []).append(status)

    for queue_key in conn.smembers(keys.queues):
        queue = keys.name_of_queue(queue_key.decode())
        add("queued", conn.zrange(keys.ready(queue), 0, -1))
        if queue in LIST_QUEUES:
            add("queued", conn.lrange(keys.queue(queue), 0, -1))
        add("started", conn.zrange(keys.wip(queue), 0, -1))
        for status in ("finished", "canceled", "stopped", "deferred"):
            add(status, conn.zrange(getattr(keys, status)(queue), 0, -1))
    add("failed", conn.zrange(keys.failed, 0, -1))
    add("scheduled", conn.zrange(keys.scheduled, 0, -1))
    return found


def check_conservation(conn: redis.Redis, accepted: Iterable[str], keys: Keys | None = None) -> dict[str, str]:
    """Assert that each accepted id is in exactly one set and that its hash says the same. Returns id -> status."""
    keys = keys or Keys()
    found = memberships(conn, keys)
    wrong, states = [], {}
    for job_id in accepted:
        raw = conn.hget(keys.job(job_id), "status")
        status = raw.decode() if raw else None
        if status is None or found.get(job_id) != [status]:
            wrong.append(f"{job_id}: hash says {status}, sets say {found.get(job_id)}")
        states[job_id] = status or "?"
    assert not wrong, f"{len(wrong)} job(s) not in exactly one state:\n" + "\n".join(wrong[:20])
    return states
