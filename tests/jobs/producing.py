"""Tasks that enqueue."""

from __future__ import annotations

import os
import secrets

from fusion import Job, Queue


def for_ever(queue: str) -> None:
    """Enqueues, and checks that each answer is the one to its own question."""
    while True:
        marks = [secrets.token_hex(8) for _ in range(3)]
        first = Queue(queue).enqueue("tests.jobs.basic.noop", job_id=marks[0], description=marks[0], result_ttl=600)
        assert Job.fetch(first.id).description == marks[0], "another call's answer"
        many = [Queue.prepare_data("tests.jobs.basic.noop", [n], job_id=mark, ttl=600) for n, mark in enumerate(marks[1:])]
        assert [job.id for job in Queue(queue).enqueue_many(many)] == marks[1:], "another call's answer"


def pid() -> int:
    return os.getpid()
