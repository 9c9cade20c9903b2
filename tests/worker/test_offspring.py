"""Tasks that use multiprocessing, in both modes."""

from __future__ import annotations

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers

ENV = {"FUSION_TASKS": "tests.jobs.offspring"}


@pytest.mark.long
@pytest.mark.parametrize("mode", [("--slots", "2"), ("--horses", "2")], ids=["process per job", "warm"])
def test_pools_end_and_processes_can_be_terminated(mode: tuple[str, ...], workers: Workers, conn: redis.Redis) -> None:
    workers.start("m", *mode, env=ENV)
    queue = Queue("m", conn)
    pools = [queue.enqueue("tests.jobs.offspring.pool", 6, job_timeout=30) for _ in range(8)]
    ended = queue.enqueue("tests.jobs.offspring.terminated", "fork", job_timeout=30)
    eventually(lambda: all(status_of(conn, job.id) in ("finished", "failed") for job in (*pools, ended)), 45)
    assert [(status_of(conn, job.id), field(conn, job.id, "result")) for job in pools] == [("finished", "42")] * 8
    assert field(conn, ended.id, "result") == "-15"
    check_conservation(conn, [job.id for job in (*pools, ended)])
