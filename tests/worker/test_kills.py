"""SIGKILL of every process of the tree while a job runs: the job runs again, ends once, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Queue
from fusion.job import Job
from tests.faults.conservation import check_conservation
from tests.support import eventually
from tests.worker.harness import ROOT, WorkerProcess, Workers, alive, field, runs_of, status_of, wait_may_recover

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


@pytest.mark.parametrize("horse_too", [False, True], ids=["worker", "worker and horse"])
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


def test_a_stopped_worker_loses_its_lease_and_its_late_outcome(workers: Workers, gated: Gated) -> None:
    sleeper = workers.start("k", env=SHORT)
    (first,) = gated.runs(1)
    workers.start("k", env=SHORT)
    wait_may_recover(gated.conn)
    sleeper.signal(signal.SIGSTOP)
    gated.runs(2, timeout=RECOVERY)
    gated.gate.unlink()  # both horses end, the first one unheard
    eventually(lambda: status_of(gated.conn, gated.job.id) == "finished")
    ended = field(gated.conn, gated.job.id, "ended_at")
    eventually(lambda: not alive(first), why="the first horse has given its outcome and gone")
    sleeper.signal(signal.SIGCONT)
    eventually(lambda: "not accepted: another execution has it" in sleeper.output, why="the stale outcome is refused")
    assert field(gated.conn, gated.job.id, "ended_at") == ended
    assert len(gated.runs()) == 2
    check_conservation(gated.conn, [gated.job.id])
    # and it is a worker again
    later = [Queue("k", gated.conn).enqueue("tests.jobs.basic.add", i, 1) for i in range(20)]
    eventually(lambda: all(status_of(gated.conn, job.id) == "finished" for job in later))
    eventually(lambda: len(gated.conn.smembers("rq:workers")) == 2, why="both are registered")


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


# -- the crash matrix

_WORKER_POINTS = [
    "register.birth=kill",
    "fork.ask=kill",
    "fork.ask=kill@3",
    "turn.before=kill",
    "turn.before=kill@3",
    "turn.after_reply=kill",
    "turn.after_reply=kill@3",
    "claim.after_reply=kill",
    "claim.after_reply=kill@2",
    "handout.after=kill",
    "handout.after=kill@3",
    "outcome.received=kill",
    "outcome.received=kill@2",
    "beat.before=kill",
    "sched.before_batch=kill",
    "sched.after_batch=kill",
    "shutdown.drain=kill",
    "shutdown.release=kill",
]
_HORSE_POINTS_BEFORE = ["horse.start", "horse.before_task"]
_HORSE_POINTS_AFTER = ["horse.after_task", "horse.before_outcome"]
_MATRIX = {"FUSION_LEASE": "0.6", "FUSION_MAX_LOST": "1000"}


def _three_jobs(conn: redis.Redis, seen: Path) -> list[str]:
    queue = Queue("k", conn)
    return [queue.enqueue("tests.jobs.basic.sleep", 0.1, str(seen), "x").id for _ in range(3)]


def _healthy_worker_finishes(workers: Workers, conn: redis.Redis, jobs: list[str], seen: Path, runs: int = 2) -> None:
    workers.start("k", ready=False, env=_MATRIX)
    eventually(lambda: all(status_of(conn, job) == "finished" for job in jobs), 20, why="the healthy worker finishes everything")
    counted = [len(runs_of(seen, "begin-x", job)) for job in jobs]
    assert all(1 <= count <= runs for count in counted), counted
    assert set(check_conservation(conn, jobs).values()) == {"finished"}
    eventually(lambda: len(conn.smembers("rq:workers")) == 1, why="the dead worker leaves the list")
    assert not conn.exists("rq:wip:k")


@pytest.mark.parametrize("point", _WORKER_POINTS)
def test_a_worker_killed_at(point: str, workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    jobs = _three_jobs(conn, seen)
    dying = workers.start("k", ready=False, env={**_MATRIX, "FUSION_FAILPOINTS": point})
    if point.startswith("shutdown"):
        eventually(lambda: runs_of(seen, "begin-x"), why="a job has begun")
        dying.signal(signal.SIGQUIT if "release" in point else signal.SIGTERM)
    assert dying.wait() == -signal.SIGKILL, dying.output
    _healthy_worker_finishes(workers, conn, jobs, seen)


def test_a_fork_server_killed_at_a_fork_is_replaced(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    jobs = _three_jobs(conn, seen)
    # Each of its fork servers dies at its third fork: every job costs one.
    worker = workers.start("k", ready=False, env={**_MATRIX, "FUSION_FAILPOINTS": "fork.before=kill@3"})
    eventually(lambda: "the fork server ended" in worker.output, why="a fork server was killed")
    worker.signal(signal.SIGQUIT)
    worker.wait()
    _healthy_worker_finishes(workers, conn, jobs, seen, runs=20)


@pytest.mark.parametrize("point", _HORSE_POINTS_BEFORE)
def test_horses_killed_before_the_task(point: str, workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    jobs = _three_jobs(conn, seen)
    worker = workers.start("k", ready=False, env={**_MATRIX, "FUSION_FAILPOINTS": f"{point}=kill"})
    words = "died before it had a job" if point == "horse.start" else "SIGKILL, not by Fusion"
    eventually(lambda: words in worker.output, why=words)
    worker.signal(signal.SIGQUIT)
    worker.wait()
    assert not runs_of(seen, "begin-x")
    _healthy_worker_finishes(workers, conn, jobs, seen, runs=1)


@pytest.mark.parametrize("point", _HORSE_POINTS_AFTER)
def test_a_horse_killed_between_task_and_outcome(point: str, workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen, here = tmp_path / "seen", tmp_path / "here"
    jobs = _three_jobs(conn, seen)
    worker = workers.start("k", ready=False, env={**_MATRIX, "FUSION_FAILPOINTS": f"{point}=wait:{here}"})
    eventually(here.exists, why=f"the horse is at {point}")
    (pid,) = runs_of(seen, "end-x")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: any(field(conn, job, "lost") == "1" for job in jobs), why="the job is lost")
    _end_at_once(worker)
    here.unlink(missing_ok=True)
    _healthy_worker_finishes(workers, conn, jobs, seen, runs=3)


def _end_at_once(worker: WorkerProcess) -> None:
    tree = worker.tree()
    worker.signal(signal.SIGQUIT)
    assert worker.wait() == 1
    psutil.wait_procs(tree, 5)


def test_every_failpoint_is_struck() -> None:
    struck = {point.partition("=")[0] for point in _WORKER_POINTS} | {*_HORSE_POINTS_BEFORE, *_HORSE_POINTS_AFTER, "fork.before"}
    sources = [*(ROOT / "fusion/process").glob("*.py"), *(ROOT / "fusion/execution").glob("*.py")]
    assert {name for file in sources for name in re.findall(r'failpoint\("([a-z_.]+)"\)', file.read_text())} == struck
