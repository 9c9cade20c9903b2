"""SIGKILL of every process of the tree while a job runs: the job runs again, ends once, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.job import Job
from tests.faults.rig.conservation import check_conservation
from tests.kit.length import gate_case, long_case
from tests.kit.promises import claim, promise
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, field, runs_of, status_of
from tests.kit.workers import EXECUTORS, Workers, wait_may_recover

LEASE = 1.0
#: The worker looks for expired leases four times in a lease; the rest is for a busy machine.
RECOVERY = LEASE + LEASE / 4 + 1.5
SHORT = {"FUSION_LEASE": str(LEASE)}


class Gated:
    """A job that runs until it is let go, and notes each of its runs."""

    def __init__(self, conn: redis.Redis, directory: Path) -> None:
        self.gate, self.seen = directory / "gate", directory / "seen"
        self.gate.touch()
        self.conn = conn
        self.job: Job = Queue("k", conn).enqueue("tests.jobs.basic.until_gone", str(self.gate), str(self.seen))

    def runs(self, count: int = 1, timeout: float = 10.0) -> list[int]:
        """Pids of its runs, once there are `count`."""
        eventually(lambda: len(runs_of(self.seen, "started")) >= count, timeout, why=f"run {count} of the job")
        return runs_of(self.seen, "started")

    def finish(self) -> None:
        self.gate.unlink()
        eventually(lambda: status_of(self.conn, self.job.id) == "finished", why="the job ends")
        assert field(self.conn, self.job.id, "lost") in ("", "0")
        assert field(self.conn, self.job.id, "attempts") in ("", "0")
        assert check_conservation(self.conn, [self.job.id]) == {self.job.id: "finished"}


@pytest.fixture
def gated(conn: redis.Redis, tmp_path: Path) -> Gated:
    return Gated(conn, tmp_path)


def test_a_killed_horse_costs_a_lost_lease_and_no_attempt(workers: Workers, gated: Gated) -> None:
    worker = workers.start("k")
    (horse,) = gated.runs(1)
    os.kill(horse, signal.SIGKILL)
    assert gated.runs(2)[0] == horse
    assert field(gated.conn, gated.job.id, "lost") == "1"
    gated.finish()
    assert len(gated.runs()) == 2
    assert worker.process.poll() is None
    assert "SIGKILL, not by Fusion" in worker.output


def test_a_killed_fork_server_is_replaced_and_its_job_runs_again(workers: Workers, gated: Gated) -> None:
    worker = workers.start("k")
    (horse,) = gated.runs(1)
    server = worker.fork_server()
    server.kill()
    gated.runs(2)
    assert not alive(horse), "the killed fork server's horse runs beside its successor"
    assert worker.fork_server().pid != server.pid
    gated.finish()
    assert len(gated.runs()) == 2
    assert "the fork server ended" in worker.output


@claim("P7")
@pytest.mark.parametrize("horse_too", [long_case(False, id="worker"), pytest.param(True, id="worker and horse")])
def test_another_worker_runs_a_dead_ones_job_within_lease_and_reap_interval(
    workers: Workers, gated: Gated, horse_too: bool
) -> None:
    dying = workers.start("k", env=SHORT)
    (horse,) = gated.runs(1)
    heir = workers.start("k", env=SHORT)
    wait_may_recover(gated.conn)
    killed = time.monotonic()
    if horse_too:
        dying.signal(signal.SIGSTOP)  # or it would see to the job itself
        os.kill(horse, signal.SIGKILL)
    dying.kill()
    gated.runs(2, timeout=RECOVERY)
    assert time.monotonic() - killed <= RECOVERY
    assert not alive(horse), "the dead worker's horse runs beside the new one"
    assert field(gated.conn, gated.job.id, "lost") == "1"
    gated.finish()
    assert len(gated.runs()) == 2
    # its lease and its last sign of life need not be of the same moment
    eventually(lambda: gated.conn.scard("rq:workers") == 1, RECOVERY, why="the dead worker leaves the list")
    (name,) = gated.conn.smembers("rq:workers")
    assert str(heir.pid) in name.decode()


@claim("P4")
def test_a_poison_pill_fails_after_its_last_life(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    job = Queue("k", conn).enqueue("tests.jobs.basic.signal_self", int(signal.SIGKILL), str(seen))
    after = Queue("k", conn).enqueue("tests.jobs.basic.add", 2, 3)
    worker = workers.start("k", env={"FUSION_MAX_LOST": "3"})
    eventually(lambda: status_of(conn, after.id) == "finished")
    eventually(lambda: status_of(conn, job.id) == "failed")
    reason = field(conn, job.id, "exc_info")
    assert "SIGKILL" in reason and "poison pill" in reason
    assert len(runs_of(seen, "signal")) == 3
    assert worker.process.poll() is None
    check_conservation(conn, [job.id, after.id])


@claim("P6")
@pytest.mark.parametrize("executor", [gate_case(name) for name in EXECUTORS])
def test_a_stopped_worker_loses_its_lease_and_its_late_outcome(
    workers: Workers, gated: Gated, tmp_path: Path, executor: str
) -> None:
    told = tmp_path / "armed" / "told"
    sleeper = workers.start("k", "--executor", executor, env={**SHORT, "FUSION_FAILPOINTS": f"horse.after_outcome=wait:{told}"})
    gated.runs(1)
    workers.start("k", "--executor", executor, env=SHORT)
    wait_may_recover(gated.conn)
    sleeper.signal(signal.SIGSTOP)
    gated.runs(2)  # the bell for it may ring at the one that stands still
    told.parent.mkdir()
    gated.gate.unlink()  # both runs end, and the worker of the first does not read its outcome
    eventually(lambda: status_of(gated.conn, gated.job.id) == "finished")
    ended = field(gated.conn, gated.job.id, "ended_at")
    eventually(told.exists, why="the first run has given its outcome")
    told.unlink()
    sleeper.signal(signal.SIGCONT)
    eventually(lambda: "not accepted: another execution has it" in sleeper.output, why="the stale outcome is refused")
    with promise("P5", "P6"):
        assert field(gated.conn, gated.job.id, "ended_at") == ended
        assert len(gated.runs()) == 2
    check_conservation(gated.conn, [gated.job.id])
    # and it is a worker again
    later = [Queue("k", gated.conn).enqueue("tests.jobs.basic.add", i, 1) for i in range(20)]
    eventually(lambda: all(status_of(gated.conn, job.id) == "finished" for job in later))
    eventually(lambda: len(gated.conn.smembers("rq:workers")) == 2, why="both are registered")


@pytest.mark.long
def test_a_resumed_worker_kills_the_job_that_another_has(workers: Workers, gated: Gated) -> None:
    sleeper = workers.start("k", env=SHORT)
    (first,) = gated.runs(1)
    workers.start("k", env=SHORT)
    wait_may_recover(gated.conn)
    sleeper.signal(signal.SIGSTOP)
    gated.runs(2, timeout=RECOVERY)
    sleeper.signal(signal.SIGCONT)
    eventually(lambda: not alive(first), why="the horse of the lost job is killed")
    gated.finish()
    assert len(gated.runs()) == 2
