"""Fair turns as workers give them: how long one tenant's job waits while another's many run."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.jobs import basic
from tests.kit.length import long_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import lines
from tests.kit.workers import Workers


def flood(seen: Path, keys: int, jobs: int) -> list[str]:
    datas = [Queue.prepare_data(basic.witness, (str(seen), f"big{n % keys}"), fair_key=f"big{n % keys}") for n in range(jobs)]
    return [job.id for job in Queue("sms").enqueue_many(datas)]


def started_between(conn: redis.Redis, job_id: str) -> int:
    """Jobs that workers took after this one had come and before they took it."""
    events = [fields for _, fields in conn.xrange("rq:events")]
    own = [
        i
        for i, event in enumerate(events)
        if event[b"job_id"] == job_id.encode() and event[b"event"] in (b"queued", b"processing")
    ]
    return sum(event[b"event"] == b"processing" for event in events[own[0] : own[1]])


def check_one_job_among(keys: int, workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """Besides what is in the slots: that was taken before."""
    seen, jobs = tmp_path / "seen", 30 + 3 * keys
    ids = flood(seen, keys, 2 * jobs)
    for _ in range(2):
        workers.start("sms", "--slots", "3", "--claim-ahead", "0", "--disable-job-desc-logging")
    eventually(lambda: len([*lines(seen)]) >= 10, 60)
    for nth in range(5):
        job = Queue("sms").enqueue(basic.witness, str(seen), f"small{nth}", fair_key=f"small{nth}")
        ids.append(job.id)
        assert job.wait(60) == "finished"
        assert started_between(conn, job.id) <= keys
    eventually(lambda: len([*lines(seen)]) == len(ids), 90)
    workers.stop()
    assert set(check_conservation(conn, ids).values()) == {"finished"}


@pytest.mark.long
@pytest.mark.parametrize("keys", [1, long_case(10)])
def test_jobs_of_others_hold_up_one_by_no_more_than_one_of_each(
    workers: Workers, conn: redis.Redis, tmp_path: Path, keys: int
) -> None:
    check_one_job_among(keys, workers, conn, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(120)
def test_so_do_jobs_of_50_others(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    check_one_job_among(50, workers, conn, tmp_path)
