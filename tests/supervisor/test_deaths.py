"""Workers that die or hang under a supervisor: replaced, what they ran is given back, and the reason is logged by name."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.length import long_case, soaked
from tests.kit.private_redis import PrivateRedis
from tests.kit.promises import claim
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import alive, field, runs_of, status_of
from tests.supervisor.conftest import Gate
from tests.supervisor.harness import GATED, Services


@claim("P7")
@pytest.mark.parametrize("workers", [1, long_case(2)])
def test_the_job_of_a_killed_worker_is_claimed_again_within_a_second(
    services: Services, conn: redis.Redis, gate: Gate, workers: int
) -> None:
    job = gate.enqueue()
    begun = time.monotonic()
    service = services.start(workers, "s")
    start = time.monotonic() - begun
    (first,) = gate.begun(job)
    service.note()
    killed = time.monotonic()
    service.worker_of(conn, job.id).kill()
    eventually(lambda: len(gate.pids(job)) == 2, 10, interval=0.002, why="the job runs again")
    took = time.monotonic() - killed
    print(f"claimed and running again {took * 1000:.0f} ms after SIGKILL of its worker ({workers} worker(s))")
    assert not alive(first), "never twice at a time"
    assert took <= 1 + start, "a second, and the start of a process where no other is free"
    gate.open()
    eventually(lambda: status_of(conn, job.id) == "finished")
    assert field(conn, job.id, "attempts") in ("", "0")
    service.wait_ready(workers)
    service.signal(signal.SIGTERM)
    service.ended(0)
    assert re.search(
        r"ProcessExitError: worker \d \(pid \d+, \S+\) was killed by SIGKILL; the OOM killer, or a person", service.output
    )
    assert conn.smembers("rq:workers") == set()
    check_conservation(conn, [job.id])


@pytest.mark.long
def test_on_lost_fail_gets_the_cause_by_name(services: Services, conn: redis.Redis, gate: Gate) -> None:
    job = gate.enqueue(on_lost="fail")
    service = services.start(1, "s")
    gate.begun(job)
    worker = service.worker_of(conn, job.id)
    worker.kill()
    eventually(lambda: status_of(conn, job.id) == "failed")
    reason = field(conn, job.id, "reason")
    assert reason.startswith("ProcessExitError: worker 1 (pid ")
    assert f"pid {worker.pid}, " in reason
    assert "was killed by SIGKILL" in reason
    assert len(gate.pids(job)) == 1
    check_conservation(conn, [job.id])


@pytest.mark.long
def test_the_poison_cap_is_the_workers_own(services: Services, conn: redis.Redis, gate: Gate) -> None:
    job = gate.enqueue()
    service = services.start(1, "s", env={"FUSION_MAX_LOST": "1"})
    gate.begun(job)
    service.worker_of(conn, job.id).kill()
    eventually(lambda: status_of(conn, job.id) == "failed")
    assert "poison pill" in field(conn, job.id, "reason")


@pytest.mark.long
def test_many_dead_workers_leave_a_clean_registry(services: Services, conn: redis.Redis, gate: Gate) -> None:
    count = soaked(8, 20)
    lease = unhurried(6.0)  # on a machine where twenty processes start slowly their leases are to outlive that
    jobs = [gate.enqueue() for _ in range(count // 2)]
    service = services.start(count, "s", env={"FUSION_LEASE": str(lease)}, ready=False)
    service.wait_ready(count, timeout=50)
    for job in jobs:
        gate.begun(job)
    service.note()
    dead = eventually(lambda: len(found := {member.decode() for member in conn.smembers("rq:workers")}) == count and found, 30)
    victims = service.workers()
    begun = time.monotonic()
    for worker in victims:
        worker.kill()
    eventually(
        lambda: not dead & {member.decode() for member in conn.smembers("rq:workers")}, lease + 4, why="their entries are gone"
    )
    took = time.monotonic() - begun
    print(f"registry clean {took * 1000:.0f} ms after SIGKILL of {count} workers")
    assert took <= 2 * lease / 3
    assert not conn.exists(*dead, *(f"{key}:jobs" for key in dead))
    gate.open()
    eventually(lambda: all(status_of(conn, job.id) == "finished" for job in jobs), 40, why="all ran again")
    check_conservation(conn, [job.id for job in jobs])
    service.signal(signal.SIGTERM)
    service.ended(0, timeout=30)


@pytest.mark.long
def test_a_worker_that_hangs_is_killed_and_replaced(services: Services, conn: redis.Redis, gate: Gate) -> None:
    job = gate.enqueue(on_lost="fail")
    second = gate.enqueue()
    limit = unhurried(2)
    service = services.start(2, "s", env={"FUSION_HANG_TIMEOUT": str(limit)})
    gate.begun(job)
    gate.begun(second)
    hung = service.worker_of(conn, job.id)
    hung.send_signal(signal.SIGSTOP)
    eventually(lambda: status_of(conn, job.id) == "failed", limit + 8, why="the hanging worker is buried")
    assert field(conn, job.id, "reason").startswith("ProcessPrunedError: worker ")
    assert "gave no sign of life" in field(conn, job.id, "reason")
    assert not alive(hung.pid)
    service.wait_ready(2)
    assert len(gate.pids(second)) == 1, "the other one was left alone"
    gate.open()
    eventually(lambda: status_of(conn, second.id) == "finished")


@pytest.mark.long
def test_a_supervisor_that_was_frozen_itself_kills_nobody(services: Services, conn: redis.Redis, gate: Gate) -> None:
    job = gate.enqueue()
    limit = unhurried(2)
    service = services.start(1, "s", env={"FUSION_HANG_TIMEOUT": str(limit)})
    gate.begun(job)
    service.signal(signal.SIGSTOP)
    worker = service.worker_of(conn, job.id)
    worker.send_signal(signal.SIGSTOP)
    frozen = time.monotonic()
    eventually(lambda: time.monotonic() > frozen + limit + 1, limit + 10, why="longer than the limit has passed")
    service.signal(signal.SIGCONT)  # and the worker a moment later, as it comes when a container thaws
    eventually(lambda: conn.ping(), why="a moment")
    worker.send_signal(signal.SIGCONT)
    gate.open()
    eventually(lambda: status_of(conn, job.id) == "finished")
    assert len(gate.pids(job)) == 1
    assert "no sign of life" not in service.output


@pytest.mark.long
def test_a_crash_loop_backs_off_and_says_so(services: Services, conn: redis.Redis) -> None:
    service = services.start(1, "s", ready=False, env={"FUSION_FAILPOINTS": "register.after=exit:7"})
    service.says("exited with code 7", 4, timeout=25)
    pauses = [
        float(found)
        for found in re.findall(
            r"ProcessExitError: worker 1 \(pid .*?\) exited with code 7 \[FUS-153\]; .* in ([\d.]+) s", service.output
        )
    ]
    assert pauses[:3] == [0.1, 0.2, 0.4], service.output
    assert "exited with code 7 [FUS-153]; a new one starts\n" in service.output, "the first at once"
    service.signal(signal.SIGTERM)
    service.ended(0)
    assert conn.smembers("rq:workers") == set(), "what they registered is taken back"


@pytest.mark.long
def test_while_redis_is_away_the_dead_wait_for_their_burial(private_redis: PrivateRedis, tmp_path: Path) -> None:
    conn, gate, seen = private_redis.conn, tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    job = Queue("s", conn).enqueue(GATED, str(gate), str(seen))
    services = Services(private_redis.url, tmp_path)
    try:
        service = services.start(2, "s", env={"FUSION_SOCKET_TIMEOUT": "0.3"})
        eventually(lambda: runs_of(seen, "started"))
        worker = service.worker_of(conn, job.id)
        private_redis.pause()
        worker.kill()
        service.says("ProcessExitError")
        service.says("Redis is away")
        private_redis.resume()
        eventually(lambda: len(runs_of(seen, "started")) == 2, 8, why="the job runs again, long before its lease is over")
        gate.unlink()
        eventually(lambda: status_of(conn, job.id) == "finished")
        assert len(conn.smembers("rq:workers")) >= 1
        check_conservation(conn, [job.id])
    finally:
        private_redis.revive()
        services.stop()


@pytest.mark.long
@pytest.mark.parametrize("mode", [long_case(("--slots", "1"), id="process per job"), pytest.param(("--horses", "1"), id="warm")])
def test_a_worker_killed_together_with_its_fork_server_leaves_no_daemon_beside_the_rerun(
    mode: tuple[str, ...], services: Services, conn: redis.Redis, tmp_path: Path
) -> None:
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    gate.touch()
    job = Queue("o", conn).enqueue("tests.jobs.stubborn.daemon_beside", str(seen), str(gate))
    service = services.start(1, "o", *mode, env={"FUSION_TASKS": "tests.jobs.stubborn"})
    eventually(lambda: len(runs_of(seen, "daemon")) == 4, 20)
    worker = service.worker_of(conn, job.id)
    servers = worker.children()
    os.kill(worker.pid, signal.SIGSTOP)
    for process in (*servers, worker):
        process.kill()
    eventually(lambda: len(runs_of(seen, "here")) == 2, 20, why="the job runs again")
    assert runs_of(seen, "overlap") == []
    assert not any(alive(pid) for pid in runs_of(seen, "daemon")[:4])
    gate.unlink()
    eventually(lambda: status_of(conn, job.id) == "finished")
