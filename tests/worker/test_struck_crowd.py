"""Many jobs in threads of one process, some of which are struck: each ends as it would alone, whatever happened to those beside it."""

from __future__ import annotations

import random

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, losses_of, status_of
from tests.kit.workers import Workers

BESIDE = "tests.jobs.beside."
TIMED_OUT = "fusion.exceptions.JobTimeoutException"


@pytest.mark.long
@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_each_ends_as_it_would_alone(workers: Workers, conn: redis.Redis, executor: str) -> None:
    rng, queue = random.Random(7), Queue("c", conn)
    places = {"thread": "--threads", "asyncio": "--concurrency"}[executor]
    quick = [queue.enqueue_call(BESIDE + "turns", (rng.uniform(0, 0.05),)) for _ in range(150)]
    late = [queue.enqueue_call(BESIDE + "turns", (60,), timeout=rng.uniform(0.1, 0.8)) for _ in range(12)]
    asking = [queue.enqueue_call(BESIDE + "checks", (), timeout=rng.uniform(0.1, 0.8)) for _ in range(40)]
    longer = [queue.enqueue_call(BESIDE + "turns", (1.0,)) for _ in range(8)]
    jobs = [*quick, *late, *asking, *longer]
    # The grace that people have: among fifteen threads that never rest it takes a moment until it is one's turn to be struck.
    env = {"FUSION_TASKS": "tests.jobs.beside", "FUSION_TIMEOUT_GRACE": "5"}
    worker = workers.start("c", "--executor", executor, "--horses", "2", places, "15", env=env)
    ids = [job.id for job in jobs]
    eventually(lambda: all(status_of(conn, one) in ("finished", "failed") for one in ids), 60, why="all have ended")
    assert {status_of(conn, job.id) for job in (*quick, *longer)} == {"finished"}
    for job in (*late, *asking):
        assert field(conn, job.id, "error_class") == TIMED_OUT
        assert field(conn, job.id, "reason").startswith(f"{TIMED_OUT}: Task exceeded maximum timeout value"), "none was killed"
    unharmed = [field(conn, job.id, name) for job in (*quick, *longer) for name in ("attempts", "suspect")]
    assert set(unharmed) <= {"", "0"}
    assert [losses_of(conn, job.id) for job in longer] == [0] * 8
    assert "killed" not in "".join(line for line in worker.output.splitlines() if "is killed when" not in line)
    check_conservation(conn, ids)
