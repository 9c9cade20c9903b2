from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.job import Job
from tests.kit.waiting import eventually
from tests.kit.witnesses import runs_of
from tests.supervisor.harness import GATED, Service, Services


@pytest.fixture
def services(redis_url: str, tmp_path: Path) -> Iterator[Services]:
    found = Services(redis_url, tmp_path)
    yield found
    found.stop()


class Gate:
    """Jobs that run until the gate opens, and note that they began."""

    def __init__(self, conn: redis.Redis, directory: Path) -> None:
        self.file, self.seen = directory / "gate", directory / "seen"
        self.file.touch()
        self.queue = Queue("s", conn)

    def enqueue(self, **options: object) -> Job:
        return self.queue.enqueue(GATED, str(self.file), str(self.seen), **options)

    def begun(self, job: Job, times: int = 1) -> list[int]:
        """Pids of the job's runs, once there are this many."""
        eventually(lambda: len(self.pids(job)) >= times, 20, why=f"run {times} of the job has begun")
        return self.pids(job)

    def pids(self, job: Job) -> list[int]:
        return runs_of(self.seen, "started", job.id)

    def open(self) -> None:
        self.file.unlink()


@pytest.fixture
def gate(conn: redis.Redis, tmp_path: Path) -> Gate:
    return Gate(conn, tmp_path)


@pytest.fixture
def busy(services: Services, gate: Gate) -> tuple[Service, Job]:
    """Two workers, one of which runs a gated job."""
    job = gate.enqueue()
    service = services.start(2, "s", "--shutdown-timeout", "15")
    gate.begun(job)
    service.note()
    return service, job
