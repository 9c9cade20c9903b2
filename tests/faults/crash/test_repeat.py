"""A worker dies around the commit of a run whose job is to run again: every run comes, and none that was committed comes twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import redis

from fusion.rq import Queue, Repeat, Retry
from tests.faults.rig.conservation import check_ended, runs_seen
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, losses_of, status_of
from tests.kit.workers import Workers

TIMES = 2


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("place", "interval"),
    [
        ("outcome.received=kill@1", 0),
        ("turn.before=kill@2", 0),  # the commit of the first run is not sent
        ("turn.after=kill@2", 0),  # it is there, and nobody reads the answer, nor which job it gave
        ("turn.before=kill@2", 1),
        ("turn.after=kill@2", 1),
        ("claim.after_reply=kill@2", 0),
    ],
)
def test_every_run_comes_once(workers: Workers, conn: redis.Redis, tmp_path: Path, place: str, interval: int) -> None:
    seen = tmp_path / "seen"
    env = {"FUSION_LEASE": "1"}
    repeat = Repeat(times=TIMES, interval=interval)
    job = Queue("k", conn).enqueue("tests.jobs.basic.witness", str(seen), "run", retry=Retry(max=3), repeat=repeat)
    struck = workers.start("k", env={**env, "FUSION_FAILPOINTS": place}, ready=False)
    assert struck.wait() == -signal.SIGKILL
    workers.start("k", env=env)
    eventually(lambda: status_of(conn, job.id) == "finished", 100, why="all runs came")
    runs, committed = runs_seen(seen), [event for _, event in conn.xrange("rq:events") if event[b"event"] == b"completed"]
    assert len(committed) == TIMES + 1
    assert TIMES + 1 <= runs[job.id] <= TIMES + 1 + losses_of(conn, job.id)
    assert field(conn, job.id, "repeats_left") == "0"
    check_ended(conn, [job.id], runs)
