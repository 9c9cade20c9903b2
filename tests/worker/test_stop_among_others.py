"""Some of many jobs are stopped, wherever each is: one verdict, the same everywhere, and nobody else's job feels it."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
import redis

from fusion import Job, Queue
from fusion.exceptions import InvalidJobOperation
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import events_of
from tests.kit.waiting import eventually
from tests.kit.witnesses import runs_of, status_of
from tests.kit.workers import Workers

COUNT = 150
ENV = {"FUSION_TASKS": "tests.jobs.stopping,tests.jobs.stubborn,tests.jobs.basic", "FUSION_TIMEOUT_GRACE": "3"}
MODES, NAMES = [("--slots", "2"), ("--horses", "2"), ("--horses", "2", "--claim-ahead", "100")], ["fork", "warm", "ahead"]


def _verdict(conn: redis.Redis, job: Job, seen: Path) -> str:
    """How it ended, if all that can be asked say the same."""
    eventually(lambda: status_of(conn, job.id) in ("finished", "stopped", "failed"), 20, why=f"{job.id} has ended")
    status = status_of(conn, job.id)
    ends = [
        event["event"] for event in events_of(conn, job.id) if event["event"] in ("completed", "failed", "stopped", "canceled")
    ]
    assert ends == [{"finished": "completed"}.get(status, status)]
    assert len(runs_of(seen, "done", job.id)) <= 1
    assert status != "finished" or runs_of(seen, "done", job.id), "what finished was done"
    if status == "stopped":
        assert job.stop() == "stopped"
    else:
        with pytest.raises(InvalidJobOperation, match=f"has ended \\({status}\\)"):
            job.stop()
    return status


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES, ids=NAMES)
def test_some_of_many_are_stopped_and_the_others_all_run(
    workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    """Queued, claimed ahead, in the turn's answer, running: each where it is."""
    workers.start("t", *mode, env=ENV)
    queue, seen, chance = Queue("t", conn), tmp_path / "seen", random.Random(8)
    jobs = queue.enqueue_many([Queue.prepare_data("tests.jobs.stopping.short", (str(seen), 0.002)) for _ in range(COUNT)])
    some = [job for job in jobs if chance.random() < 0.4]
    chosen = {job.id for job in some}
    for job in sorted(some, key=lambda job: jobs.index(job) + chance.randrange(6)):
        try:
            job.stop()
        except InvalidJobOperation:
            pass
    for job in jobs:
        verdict = (
            _verdict(conn, job, seen) if job.id in chosen else eventually(lambda job=job: status_of(conn, job.id) == "finished")
        )  # type: ignore[misc]
        assert verdict
        runs = len(runs_of(seen, "done", job.id))
        assert runs == 1 if job.id not in chosen else runs <= 1
    check_conservation(conn, [job.id for job in jobs])


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES[:2], ids=NAMES[:2])
def test_a_stop_as_its_process_is_killed(workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]) -> None:
    """Lost or stopped: it does not run again."""
    workers.start("t", *mode, env=ENV)
    queue, chance = Queue("t", conn), random.Random(9)
    for number in range(20):
        seen = tmp_path / str(number)
        job = queue.enqueue("tests.jobs.stubborn.sleep", str(seen))
        (pid,) = eventually(lambda seen=seen: runs_of(seen, "here"))  # type: ignore[misc]
        first, second = (job.stop, lambda pid=pid: os.kill(pid, signal.SIGKILL))  # type: ignore[misc]
        if chance.random() < 0.3:
            first, second = second, first
        first()
        time.sleep(chance.choice([0, 0, 0.002]))
        try:
            second()
        except ProcessLookupError:
            pass
        eventually(lambda job=job: status_of(conn, job.id) == "stopped", why=f"it is {status_of(conn, job.id)}")  # type: ignore[misc]
        check_conservation(conn, [job.id])
