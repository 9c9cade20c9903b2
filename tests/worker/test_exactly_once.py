"""With no crash and no pause every job runs once, however many workers pull at the queue."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.length import gate_case, soaked
from tests.kit.promises import claim, promise
from tests.kit.waiting import eventually
from tests.kit.witnesses import lines
from tests.kit.workers import EXECUTORS, Workers

TOTAL = soaked(2000, 5000)


@claim("P5")
@pytest.mark.timeout(150)
@pytest.mark.parametrize("executor", [gate_case(name) for name in EXECUTORS])
def test_two_workers_run_thousands_of_jobs_once_each(workers: Workers, conn: redis.Redis, tmp_path: Path, executor: str) -> None:
    seen = tmp_path / "seen"
    queue = Queue("bulk", conn)
    flags = ("--disable-job-desc-logging", "--executor", executor)
    names = [workers.start("bulk", *flags, env={"FUSION_NAME": name}) for name in ("one", "two")]
    jobs = queue.enqueue_many(Queue.prepare_data("tests.jobs.basic.witness", [str(seen), "ran"]) for _ in range(TOTAL))
    done = [job.id for job in jobs]
    eventually(lambda: conn.zcard("rq:finished:bulk") == TOTAL, 120, why="all jobs finished")
    runs = Counter(line.split()[1] for line in lines(seen))
    with promise("P5"):
        assert runs == Counter(done)
    assert set(check_conservation(conn, done).values()) == {"finished"}
    shares = [int(conn.hget(f"rq:worker:{name}", "successful_job_count") or 0) for name in ("one", "two")]
    assert sum(shares) == TOTAL
    assert min(shares) > TOTAL / 10, f"one worker did nearly all: {shares}"
    assert all(worker.process.poll() is None for worker in names)
