"""SIGKILL of a worker, or of its fork server, while it stops a job, and of a worker that releases children: the job ends stopped, once, its
neighbours and the children run."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from fusion import Job, Queue
from fusion.exceptions import InvalidJobOperation
from tests.faults.rig.conservation import check_conservation, check_ended, leftovers, memberships
from tests.kit.hands import events_of
from tests.kit.length import gate_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of, status_of
from tests.kit.workers import Workers
from tests.store.kin_hands import of_kin

#: The worker knows that a job is to stop; it has asked; the group of one that did not obey is about to be killed, which its fork server does.
OF_RUNNING = ("stop.ask", "stop.asked", "stop.kill")
#: What waits in a process was taken out of it, to see which of it was to stop.
OF_WAITING = "stop.taken_back"
OF_KIN = ("release.before", "release.after")
ENV = {
    "FUSION_TASKS": "tests.jobs.stubborn,tests.jobs.warm,tests.jobs.basic",
    "FUSION_TIMEOUT_GRACE": "0.3",
    "FUSION_LEASE": "1",
    "FUSION_CLAIM_AHEAD": "100",
}
MODES = {"fork": (), "pool": ("--horses", "2"), "thread": ("--executor", "thread"), "asyncio": ("--executor", "asyncio")}


def endings(conn: redis.Redis, job_id: str) -> list[str]:
    return [
        event["event"] for event in events_of(conn, job_id) if event["event"] in ("completed", "failed", "stopped", "canceled")
    ]


@pytest.mark.parametrize(
    ("mode", "place"),
    [
        (gate_case if mode == "fork" else pytest.param)(mode, place)
        for mode in MODES
        for place in OF_RUNNING
        if place != "stop.kill" or mode in ("fork", "pool")
    ],
)
def test_a_stop_is_obeyed_whoever_dies(workers: Workers, conn: redis.Redis, tmp_path: Path, mode: str, place: str) -> None:
    worker = workers.start("s", *MODES[mode], env={**ENV, "FUSION_FAILPOINTS": f"{place}=kill"})
    queue, seen = Queue("s", conn), tmp_path / "seen"
    job = queue.enqueue("tests.jobs.stubborn.swallows", str(seen))
    (pid,) = eventually(lambda: runs_of(seen, "here"), why="it runs")
    job.stop()
    if place != "stop.kill":
        assert worker.wait(15) == -signal.SIGKILL
        workers.start("s", *MODES[mode], env=ENV)
    eventually(lambda: status_of(conn, job.id) == "stopped", 20, why="it is stopped")
    eventually(lambda: not _lives(pid), why="its process is gone")
    after = queue.enqueue("tests.jobs.basic.noop")
    eventually(lambda: status_of(conn, after.id) == "finished", 20, why="the next job runs")
    assert endings(conn, job.id) == ["stopped"] and len(runs_of(seen, "here")) == 1
    check_conservation(conn, [job.id, after.id])


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def _ahead(conn: redis.Redis) -> list[str]:
    """Jobs that wait in a process."""
    started = [raw.decode() for raw in conn.zrange("rq:wip:s", 0, -1)]
    waiting = {job_id: field(conn, job_id, "execution_id") for job_id in started}
    return [job_id for job_id in started if waiting[job_id].endswith("a")]


@pytest.mark.parametrize("place", [gate_case(OF_WAITING)])
def test_prefetched_jobs_in_the_process_of_a_stopped_job_run_once(
    workers: Workers, conn: redis.Redis, tmp_path: Path, place: str
) -> None:
    worker = workers.start("s", "--horses", "1", env={**ENV, "FUSION_FAILPOINTS": f"{place}=kill"})
    queue, seen = Queue("s", conn), tmp_path / "seen"
    usual = queue.enqueue_many([Queue.prepare_data("tests.jobs.warm.nap", (0, str(seen))) for _ in range(15)])
    eventually(lambda: {status_of(conn, job.id) for job in usual} == {"finished"}, 20, why="it expects short jobs")
    jobs: list[Job] = []
    ahead, told = set[str](), set[str]()
    while not worker.is_over and len(jobs) < 600:  # some more, should all of them have run before they could be stopped
        jobs += queue.enqueue_many([Queue.prepare_data("tests.jobs.warm.nap", (0.03, str(seen))) for _ in range(60)])
        while not worker.is_over and status_of(conn, jobs[-1].id) not in ("finished", "stopped"):
            for job_id in reversed(_ahead(conn)):
                ahead.add(job_id)
                with suppress(InvalidJobOperation):
                    if Job.fetch(job_id, conn).stop() == "pending":
                        told.add(job_id)
    assert worker.wait(15) == -signal.SIGKILL
    workers.start("s", "--horses", "2", env=ENV)
    eventually(lambda: {status_of(conn, job.id) for job in jobs} <= {"finished", "stopped"}, 40, why="all have ended")
    assert all(len(endings(conn, job.id)) == 1 for job in jobs)
    assert {job.id for job in jobs if status_of(conn, job.id) == "stopped"} <= ahead
    assert any(status_of(conn, job_id) == "stopped" for job_id in told)
    check_conservation(conn, [job.id for job in (*usual, *jobs)])


@pytest.mark.parametrize("place", OF_KIN)
def test_children_are_released_whoever_dies(workers: Workers, conn: redis.Redis, place: str) -> None:
    queue = Queue("s", conn)
    first = Queue.prepare_data("tests.jobs.basic.noop")
    children = [Queue.prepare_data("tests.jobs.basic.noop", depends_on=first) for _ in range(3)]
    jobs = queue.enqueue_many([first, *children, Queue.prepare_data("tests.jobs.basic.noop", depends_on=children)])
    dies = workers.start("s", ready=False, env={**ENV, "FUSION_FAILPOINTS": f"{place}=kill"})
    assert dies.wait(15) == -signal.SIGKILL
    workers.start("s", env=ENV)
    eventually(lambda: {status_of(conn, job.id) for job in jobs} == {"finished"}, 20, why="all have run")
    assert [endings(conn, job.id) for job in jobs] == [["completed"]] * len(jobs)
    eventually(lambda: of_kin(conn) == set(), why="no child waits for its release")
    check_ended(conn, memberships(conn))
    assert leftovers(conn) == []
