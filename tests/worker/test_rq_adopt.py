"""Real workers on a Redis that stock RQ and rq-scheduler use under the same prefix: each runs its own, unless told to adopt (P13)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.jobs import basic
from tests.kit import guarded
from tests.kit.process import ROOT
from tests.kit.promises import claim
from tests.kit.waiting import eventually
from tests.kit.witnesses import lines, status_of
from tests.kit.workers import Workers

rq = pytest.importorskip("rq")
rq_scheduler = pytest.importorskip("rq_scheduler")
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.skipif(guarded.GUARDED, reason="stock RQ needs rights that Fusion's user does not have"),
]
NOOP = "tests.jobs.basic.noop"
WITNESS = "tests.jobs.basic.witness"


@pytest.fixture(params=[(), ("--horses", "1")], ids=["a process per job", "warm"])
def mode(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return request.param  # type: ignore[no-any-return]


def stock_burst(url: str, *queues: str) -> None:
    """What `rq worker` does."""
    command = [sys.executable, "-m", "rq.cli", "worker", "--burst", "--url", url, *queues]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=50)
    assert done.returncode == 0, done.stdout


def words(seen: Path) -> Iterator[str]:
    return (line.split()[0] for line in lines(seen))


def test_what_rqs_producers_enqueue_runs_where_it_is_adopted(
    workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    seen, stock = tmp_path / "seen", rq.Queue("sms", connection=conn)
    for word in ("r1", "r2"):
        stock.enqueue(WITNESS, str(seen), word, job_id=f"rq-{word}", meta={"a": 1}, result_ttl=600, job_timeout=20)
    Queue("sms", conn).enqueue(basic.witness, str(seen), "high", priority=2)
    worker = workers.burst("sms", "--adopt-rq", "sms", "-S", "pickle", *mode)
    assert list(words(seen)) == ["high", "r1", "r2"], worker.output
    assert [status_of(conn, f"rq-{word}") for word in ("r1", "r2")] == ["finished", "finished"]
    assert conn.type("rq:queue:sms") == b"none"
    assert "jobs that stock RQ's producers enqueue to sms run here" in worker.output


def test_what_is_not_adopted_stays_and_both_sides_go_on(
    workers: Workers, conn: redis.Redis, redis_url: str, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    seen, stock = tmp_path / "seen", rq.Queue("sms", connection=conn)
    stock.enqueue(WITNESS, str(seen), "theirs", job_id="rq-1")
    ours = Queue("sms", conn).enqueue(basic.witness, str(seen), "ours")
    worker = workers.burst("sms", *mode)
    assert list(words(seen)) == ["ours"]
    assert stock.job_ids == ["rq-1"]
    assert "its key is a list of stock RQ's and stays RQ's; --adopt-rq sms runs those jobs, too" in worker.output
    told = subprocess.run(
        [sys.executable, "run_worker.py", "info", "--url", redis_url], cwd=ROOT, capture_output=True, text=True, timeout=30
    ).stdout
    assert "1 jobs of stock RQ wait in the queue sms, which RQ's producers write to: they are RQ's" in told
    stock_burst(redis_url, "sms")
    assert list(words(seen)) == ["ours", "theirs"]
    assert ours.get_status() == "finished"
    assert rq.job.Job.fetch("rq-1", connection=conn).get_status() == "finished"


@claim("P13")
def test_periodic_jobs_and_workers_of_a_neighbour_outlive_ours(
    workers: Workers, conn: redis.Redis, redis_url: str, tmp_path: Path
) -> None:
    """rq-scheduler's entry is due all the time that a worker of ours promotes, reaps, prunes and cleans as often as it can."""
    seen, stock = tmp_path / "seen", rq.Queue("theirs", connection=conn)
    clock = rq_scheduler.Scheduler("theirs", connection=conn, interval=1)
    past = datetime.now(timezone.utc).replace(tzinfo=None) - timedelta(seconds=60)
    clock.schedule(past, WITNESS, args=[str(seen), "tick"], interval=3600, id="rq-periodic")
    rq.Worker([stock], name="stock", connection=conn).register_birth()
    stock.enqueue(WITNESS, str(seen), "theirs", job_id="rq-1")
    fast = {
        "FUSION_MAINTENANCE_INTERVAL": "0.05",
        "FUSION_REAP_INTERVAL": "0.05",
        "FUSION_LEASE": "0.5",
        "FUSION_IDLE_WAIT": "0.2",
    }
    worker = workers.start("*", "sms", env=fast)
    before = conn.hgetall("rq:job:rq-periodic")
    ours = [Queue("sms", conn).enqueue_in(0.2 * n, basic.noop) for n in range(8)]
    eventually(lambda: all(job.get_status() == "finished" for job in ours), 20)
    assert conn.hgetall("rq:job:rq-periodic") == before
    assert conn.sismember("rq:workers", "rq:worker:stock")
    assert conn.exists("rq:worker:stock")
    assert stock.job_ids == ["rq-1"]
    clock.enqueue_jobs()
    stock_burst(redis_url, "theirs")
    assert sorted(words(seen)) == ["theirs", "tick"]
    assert conn.zscore("rq:scheduler:scheduled_jobs", "rq-periodic") is not None, "it is due again in an hour"
    assert conn.zcard("rq:queue:failed") == 0
    assert "ERROR" not in worker.output


def test_info_as_a_document_counts_theirs_apart(conn: redis.Redis, redis_url: str) -> None:
    rq.Queue("sms", connection=conn).enqueue(NOOP)
    told = subprocess.run(
        [sys.executable, "run_worker.py", "info", "--url", redis_url, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    (queue,) = json.loads(told.stdout)["queues"]
    assert (queue["name"], queue["queue_length"], queue["rq_count"]) == ("sms", 0, 1)
