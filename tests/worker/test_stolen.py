"""A task may read what waits in its process: it runs there. A job that it took so is run all the same, and blamed for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of, status_of
from tests.kit.workers import Workers

pytestmark = pytest.mark.long

WARM = {"FUSION_TASKS": "tests.jobs.warm", "FUSION_CLAIM_AHEAD": "100", "FUSION_TIMEOUT_GRACE": "0.5"}


@pytest.mark.parametrize("behind", [1, 4])
def test_a_job_that_another_read_runs_all_the_same(workers: Workers, conn: redis.Redis, tmp_path: Path, behind: int) -> None:
    """The last one in its process, and one behind which others wait."""
    queue, seen = Queue("w", conn), tmp_path / "seen"
    worker = workers.start("w", "--horses", "1", env=WARM)

    def put(*calls: tuple[Any, ...]) -> list[Any]:
        return queue.enqueue_many([Queue.prepare_data(f"tests.jobs.warm.{task}", args, timeout=20) for task, *args in calls])

    def done(jobs: list[Any]) -> None:
        for job in jobs:
            eventually(lambda job=job: status_of(conn, job.id) == "finished", 15, why=f"{job.id} is finished")

    for _ in range(4):
        done(put(*[("pid",)] * 5))
    jobs = put(("steal", str(seen)), *[("nap", 0.0, str(seen), f"ran{n}") for n in range(behind)])
    done(jobs)
    assert "stolen" in seen.read_text(), "nothing waited behind it"
    assert all(len(runs_of(seen, f"ran{n}")) in (1, 2) for n in range(behind)), seen.read_text()
    for job in jobs:
        assert field(conn, job.id, "attempts") == "", "none was charged an attempt"
    assert set(check_conservation(conn, [job.id for job in jobs]).values()) == {"finished"}
    assert worker.process.poll() is None
