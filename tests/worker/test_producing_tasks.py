"""Tasks that enqueue, cut by their soft timeout at any moment of it."""

from __future__ import annotations

import pytest
import redis

from fusion import Queue
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers

ENV = {"FUSION_TASKS": "tests.jobs.producing,tests.jobs.basic"}


@pytest.mark.long
@pytest.mark.parametrize("mode", [("--slots", "2"), ("--horses", "2")], ids=["a process per job", "warm"])
def test_a_soft_timeout_breaks_nothing(workers: Workers, conn: redis.Redis, mode: tuple[str, str]) -> None:
    """Neither the process nor the answers, and no connection is left behind."""
    queue = Queue("p", conn)
    jobs = [queue.enqueue("tests.jobs.producing.for_ever", "made", job_timeout=unhurried(0.2) + n / 1000) for n in range(20)]
    last = queue.enqueue("tests.jobs.producing.pid")
    before = len(conn.client_list())
    workers.start("p", *mode, env=ENV)
    eventually(lambda: status_of(conn, last.id) == "finished", 30)
    for job in jobs:
        eventually(lambda job=job: status_of(conn, job.id) == "failed", 30)
        assert field(conn, job.id, "error_class") == "fusion.exceptions.JobTimeoutException", field(conn, job.id, "exc_info")
    assert Queue("made", conn).count > 20
    assert len(conn.client_list()) < before + 12, "the worker's own, and those of two processes"


@pytest.mark.long
def test_a_warm_process_is_not_used_again_after_a_soft_timeout(workers: Workers, conn: redis.Redis) -> None:
    """It may have struck amid an exchange of a client that is not Fusion's, whose next answer would then be another job's."""
    queue = Queue("p", conn)
    before = queue.enqueue("tests.jobs.producing.pid")
    struck = queue.enqueue("tests.jobs.producing.for_ever", "made", job_timeout=0.2)
    after = queue.enqueue("tests.jobs.producing.pid")
    worker = workers.burst("p", "--horses", "1", "--claim-ahead", "0", env=ENV)
    assert field(conn, struck.id, "error_class") == "fusion.exceptions.JobTimeoutException"
    assert field(conn, before.id, "result") != field(conn, after.id, "result")
    assert "left in its process: a soft timeout" in worker.output
