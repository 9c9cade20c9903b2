"""SIGKILL of a supervisor while it starts a child, and around giving back what a dead one held."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_ended, dead_entries, leftovers, runs_seen
from tests.kit.length import gate_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import runs_of
from tests.kit.workers import Workers

ALONE = ("-m", "tests.faults.crash.alone", "start", "--no-scheduler", "-n", "1")
PLACES = (gate_case("supervisor.birth"), "prune.before", "prune.after")
ENV = {"FUSION_LEASE": "0.8"}


@pytest.mark.parametrize("place", PLACES)
def test_a_supervisor_killed_at(place: str, workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    jobs = [Queue("s", conn).enqueue("tests.jobs.basic.until_gone", str(gate), str(seen)).id for _ in range(3)]
    supervisor = workers.start("s", program=ALONE, ready=False, env={**ENV, "FUSION_FAILPOINTS": f"{place}=kill"})
    if place.startswith("prune"):
        eventually(lambda: runs_of(seen, "started"), why="a job runs")
        (worker,) = psutil.Process(supervisor.pid).children()
        worker.kill()
    assert supervisor.wait() == -signal.SIGKILL, supervisor.output
    gate.unlink()  # what it had started meanwhile ends with its job
    workers.start("s", ready=False, env=ENV)
    eventually(lambda: conn.zcard("rq:finished:s") == 3, 20, why="a healthy worker finishes everything")
    assert set(check_ended(conn, jobs, runs_seen(seen)).values()) == {"finished"}
    eventually(lambda: not dead_entries(conn), why="no dead worker is in the list")
    assert leftovers(conn) == []
