"""Workers of wildcards, beside any number of names that have no work."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.jobs import basic
from tests.kit.hands import now_ms
from tests.kit.length import long_case, soak_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of, status_of
from tests.kit.workers import WorkerProcess, Workers

#: Nothing but a doorbell wakes a worker within the time of a test.
SLEEPER = {"FUSION_IDLE_WAIT": "60"}
MODES = [(), ("--horses", "2")]


def many_names(conn: redis.Redis) -> None:
    conn.sadd("rq:queues", *(f"rq:queue:tenant-{n:04}" for n in range(5000)))


def idle(conn: redis.Redis, *workers: WorkerProcess) -> None:
    """They wait at their doorbells."""
    eventually(lambda: sum(client["cmd"] == "blpop" for client in conn.client_list()) == len(workers), why="they wait")


@pytest.mark.long
@pytest.mark.parametrize("mode", [(), long_case(("--horses", "2"))])
def test_a_new_queues_first_job_wakes_the_worker_whose_wildcard_it_is(
    workers: Workers, conn: redis.Redis, mode: tuple[str, ...]
) -> None:
    many_names(conn)
    fleet = [workers.start(*names.split(","), *mode, env=SLEEPER) for names in ("otp-*", "mail-?,sms", "vip-[ab]*")]
    for queue in ("otp-new", "mail-1", "vip-bob", "sms", "otp-other"):
        idle(conn, *fleet)
        Queue(queue).enqueue(basic.noop).wait(10)


@pytest.mark.long
def test_high_jobs_wake_a_worker_whose_free_slots_are_reserved(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    workers.start("*", "--slots", "2", "--reserve-high", "1", env=SLEEPER)
    Queue("a").enqueue(basic.until_gone, str(gate), str(seen), priority=1)
    eventually(lambda: runs_of(seen, "started"), why="the first slot is taken")
    waiting = Queue("b").enqueue(basic.noop, priority=1)
    Queue("c").enqueue(basic.noop, priority=2).wait(10)
    assert status_of(conn, waiting.id) == "queued"
    gate.unlink()
    waiting.wait(10)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_an_older_producers_job_is_found_within_seconds(workers: Workers, conn: redis.Redis, mode: tuple[str, ...]) -> None:
    many_names(conn)
    worker = workers.start("*", *mode)
    idle(conn, worker)
    Queue("other").enqueue(basic.noop).wait(10)
    job = Queue("tenant-1234").enqueue(basic.noop, delay=1000)
    conn.hset(f"rq:job:{job.id}", "status", "queued")
    conn.zadd("rq:queue:tenant-1234", {job.id: 1.5})  # neither a bell nor the index knows
    conn.zrem("rq:scheduler:scheduled_jobs", job.id)
    eventually(lambda: status_of(conn, job.id) == "finished", 10, why=worker.output)


def test_a_burst_ends_when_nothing_is_left_however_many_names_there_are(workers: Workers, conn: redis.Redis) -> None:
    many_names(conn)
    jobs = [Queue(f"tenant-{n:04}").enqueue(basic.noop) for n in range(0, 5000, 250)]
    conn.delete("rq:work:*")
    workers.burst("*", "--slots", "4")
    assert {status_of(conn, job.id) for job in jobs} == {"finished"}


@pytest.mark.long
@pytest.mark.parametrize("mode", [(), soak_case(("--horses", "2"))])
def test_a_dead_workers_job_is_claimable_within_35_s_among_5000_names(
    workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    """P7, with the default lease and intervals; by the lease alone, as the worker's registration is gone as well."""
    many_names(conn)
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    env = {"FUSION_LEASE": "15"}
    dead = workers.start("tenant-4*", *mode, env=env)
    job = Queue("tenant-4321").enqueue(basic.until_gone, str(gate), str(seen))
    eventually(lambda: runs_of(seen, "started"), why="it runs")
    workers.start("*", *mode, env=env)
    eventually(lambda: (conn.hget("rq:reap", "hold") or b"0") < str(now_ms(conn)).encode(), 20, why="the hold-off after a start")
    name = field(conn, job.id, "worker_name")
    dead.signal(signal.SIGKILL)
    died = time.monotonic()
    conn.delete(f"rq:worker:{name}", f"rq:worker:{name}:jobs")
    conn.srem("rq:workers", f"rq:worker:{name}")
    eventually(lambda: len(runs_of(seen, "started")) == 2, 40, why="another worker runs it")
    assert time.monotonic() - died < 35
    gate.unlink()
    job.wait(10)
