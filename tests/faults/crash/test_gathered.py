"""SIGKILL of a worker while jobs come together for a call: before and after it asks for those that follow, and while they wait, and while
the call runs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.jobs import gathering
from tests.kit.length import gate_case
from tests.kit.promises import claim
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, lines, status_of
from tests.kit.workers import Workers

PLACES = ("follow.before", "follow.after")
ENV = {"FUSION_TASKS": "tests.jobs.gathering", "FUSION_LEASE": "1"}


@pytest.mark.parametrize("place", [*map(gate_case, PLACES), "waits"])
def test_the_jobs_of_a_call_that_has_not_begun_run_all_the_same(workers: Workers, conn: redis.Redis, place: str) -> None:
    queue = Queue("g", conn)
    jobs = [queue.enqueue_call(gathering.send, (n,)) for n in range(5)]
    if place == "waits":
        usual = field(conn, jobs[0].id, "gather")
        for job in jobs:  # another mark would close the call
            conn.hset(f"rq:job:{job.id}", "gather", "10 60")
        dies = workers.start("g", env=ENV)
        eventually(lambda: status_of(conn, jobs[0].id) == "started", why="it waits for others")
        dies.signal(signal.SIGKILL)
    else:
        dies = workers.start("g", ready=False, env={**ENV, "FUSION_FAILPOINTS": f"{place}=kill"})
    assert dies.wait(15) == -signal.SIGKILL
    if place == "waits":
        for job in jobs:
            conn.hset(f"rq:job:{job.id}", "gather", usual)
    workers.start("g", env=ENV)
    eventually(lambda: {status_of(conn, job.id) for job in jobs} == {"finished"}, 15, why="all have run")
    assert [job.result[0] for job in jobs] == [2 * n for n in range(5)]
    check_conservation(conn, [job.id for job in jobs])


@claim("P5")
@pytest.mark.parametrize("mode", [(), ("--executor", "asyncio")], ids=str)
def test_unreported_jobs_of_a_batch_run_again_when_their_worker_dies(
    workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    queue, seen, gate = Queue("g", conn), tmp_path / "seen", tmp_path / "gate"
    gate.touch()
    jobs = [queue.enqueue_call(gathering.patient, (str(seen), str(gate) if n else "")) for n in range(5)]
    dies = workers.start("g", *mode, env=ENV)
    eventually(lambda: status_of(conn, jobs[0].id) == "finished", why="it is answered")
    dies.signal(signal.SIGKILL)
    assert dies.wait(15) == -signal.SIGKILL
    gate.unlink()
    for job in jobs:
        conn.hset(f"rq:job:{job.id}", "gather", "5 0.3")  # they are four now
    workers.start("g", *mode, env=ENV)
    eventually(lambda: {status_of(conn, job.id) for job in jobs} == {"finished"}, 15, why="all have run")
    assert [field(conn, job.id, "deliveries") for job in jobs] == ["1", *["2"] * 4]
    sizes = {job.id: [line.split()[0] for line in lines(seen) if line.split()[1] == job.id] for job in jobs}
    assert [*sizes.values()] == [["of:5"], *[["of:5", "of:4"]] * 4]
    check_conservation(conn, [job.id for job in jobs])
