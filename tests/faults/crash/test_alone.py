"""Where several mechanisms answer one fault, what one of them does when the others can't."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_ended
from tests.forkserver.driver import Driver, job_fields, pids_in, wait_gone
from tests.jobs import basic
from tests.kit.hands import now_ms
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of, status_of
from tests.kit.workers import Workers

#: A task module after which the fork server sees none of its orphans, as in a kernel that does not list children; and its task.
_BLIND = """
import signal, subprocess, time
from fusion.kernel import linux

linux.Children.pids = lambda self: []

def leave(path, seconds):
    child = subprocess.Popen(["sleep", "600"])
    with open(path, "a") as file:
        file.write(f"{child.pid}\\n")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(seconds)
"""


@pytest.mark.parametrize(("seconds", "timeout", "why"), [(0, "20", "-"), (60, "0.3", "timeout")], ids=["end", "timeout"])
def test_the_process_group_is_killed_where_orphans_can_not_be_listed(
    tmp_path: Path, seconds: float, timeout: str, why: str
) -> None:
    (tmp_path / "blind.py").write_text(_BLIND)
    seen = tmp_path / "pids"
    with Driver(tasks=("blind",), modules=("blind",), path=tmp_path) as driver:
        horse = driver.hand_out(job_fields("blind.leave", str(seen), seconds, timeout=timeout))
        assert driver.finish(horse).exited.why == why
        assert len(pids_in(seen)) == 1
        wait_gone(pids_in(seen))


def test_a_job_is_another_workers_though_its_own_died_with_the_claim_in_hand(
    workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    """Neither the claim nor the run got any further: what the claim wrote is all there is."""
    env = {"FUSION_LEASE": "1"}
    seen = tmp_path / "seen"
    job = Queue("k", conn).enqueue(basic.witness, str(seen))
    dies = workers.start("k", env={**env, "FUSION_FAILPOINTS": "claim.after_reply=kill"}, ready=False)
    assert dies.wait() == -signal.SIGKILL
    workers.start("k", env=env)
    eventually(lambda: status_of(conn, job.id) == "finished", 20, why="another has run it")
    assert field(conn, job.id, "deliveries") == "2"
    check_ended(conn, [job.id])


def test_a_job_stays_its_workers_for_longer_than_a_lease(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """Its beats alone see to that: nothing else is said of it while it runs."""
    lease, gate, seen = 1.0, tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    job = Queue("k", conn).enqueue(basic.until_gone, str(gate), str(seen))
    workers.start("k", env={"FUSION_LEASE": str(lease)})
    eventually(lambda: runs_of(seen, "started"), why="it runs")
    began = now_ms(conn)

    def looked_at() -> bool:
        """Somebody has looked for expired leases, and not held off, when the first one would have been over."""
        last, hold = conn.hmget("rq:reap", "last", "hold")
        return last is not None and int(hold) <= int(last) and int(last) > began + 2000 * lease

    eventually(looked_at, 30, why="a lease would have run out")
    assert (status_of(conn, job.id), field(conn, job.id, "lost")) == ("started", "")
    gate.unlink()
    eventually(lambda: status_of(conn, job.id) == "finished", why="it ends")
    assert len(runs_of(seen, "started")) == 1
    check_ended(conn, [job.id])


def test_an_outcome_is_kept_though_redis_has_lost_the_workers_entry(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    job = Queue("k", conn).enqueue(basic.until_gone, str(gate), str(seen))
    worker = workers.start("k")
    eventually(lambda: runs_of(seen, "started"), why="it runs")
    (entry,) = conn.smembers("rq:workers")
    conn.delete("rq:workers", entry)
    gate.unlink()
    eventually(lambda: status_of(conn, job.id) == "finished", why="the outcome is committed")
    assert "registering again" in worker.output
    assert len(runs_of(seen, "started")) == 1
    check_ended(conn, [job.id])
