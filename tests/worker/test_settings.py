"""What a worker says of itself in Redis, its name, its end, and how `info` shows it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.kernel.timeutil import from_iso
from fusion.store.access import broker_of
from tests.jobs import basic
from tests.kit import guarded
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.workers import WorkerProcess, Workers

Hash = dict[str, str]


def worker_hash(conn: redis.Redis, worker: WorkerProcess) -> Hash:
    (key,) = [key for key in conn.smembers("rq:workers") if key.decode().endswith(f".{worker.pid}")]
    return {name.decode(): value.decode() for name, value in conn.hgetall(key).items()}


def names(conn: redis.Redis) -> set[str]:
    return {key.decode().removeprefix("rq:worker:") for key in conn.smembers("rq:workers")}


def info(*args: str) -> str:
    done = subprocess.run([sys.executable, "run_worker.py", "info", *args], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_states_and_fields_of_a_worker(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate, imported = tmp_path / "gate", tmp_path / "imported"
    gate.touch()
    env = {
        "FUSION_TASKS": "tests.jobs.basic,tests.jobs.gated",
        "GATED_WITNESS": str(imported),
        "GATED_GATE": str(gate),
        "FUSION_IDLE_WAIT": "0.2",
    }
    worker = workers.start("sms", "mail*", env=env, ready=False)
    eventually(imported.exists)

    def state() -> str:
        return worker_hash(conn, worker)["state"]

    eventually(lambda: names(conn))
    assert state() == "started"
    gate.unlink()
    eventually(lambda: state() == "idle")
    found = worker_hash(conn, worker)
    assert found["queues"] == "sms,mail*"
    assert int(found["pid"]) == worker.pid
    birth, beat = from_iso(found["birth"]), from_iso(found["last_heartbeat"])
    assert birth is not None and beat is not None
    assert birth <= beat <= datetime.now(timezone.utc)
    (name,) = names(conn)
    assert name.endswith(f".{worker.pid}")
    assert 400 < conn.ttl(f"rq:worker:{name}") <= 420

    gate.touch()
    job = Queue("sms").enqueue(basic.until_gone, str(gate))
    eventually(lambda: state() == "busy")
    assert worker_hash(conn, worker)["current_job"] == job.id
    assert job.id in info("-W")
    gate.unlink()
    assert job.wait(10) == "finished"
    assert Queue("sms").enqueue(basic.boom).wait(10) == "failed"
    eventually(lambda: state() == "idle")
    after = worker_hash(conn, worker)
    assert (after["current_job"], after["successful_job_count"], after["failed_job_count"]) == ("", "1", "1")
    assert int(after["total_working_us"]) > 0
    conn.set("rq:suspended", 1)
    eventually(lambda: state() == "suspended")
    conn.delete("rq:suspended")
    eventually(lambda: state() == "idle")


@pytest.mark.long
def test_a_heartbeat_renews_the_entry(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("sms", "--lease", "0.6", "--worker-ttl", "100", env={"FUSION_IDLE_WAIT": "60"})
    before = worker_hash(conn, worker)["last_heartbeat"]
    (name,) = names(conn)
    conn.expire(f"rq:worker:{name}", 5)
    eventually(lambda: worker_hash(conn, worker)["last_heartbeat"] > before)
    eventually(lambda: 90 < conn.ttl(f"rq:worker:{name}") <= 100)


@pytest.mark.long
def test_two_workers_of_one_name_get_along(workers: Workers, conn: redis.Redis) -> None:
    first = workers.start("sms", "--name", "twin")
    second = workers.start("email", "--name", "twin")
    assert names(conn) == {"twin", "twin.1"}
    jobs = [Queue(name).enqueue(basic.noop) for name in ("sms", "email")]
    assert [job.wait(10) for job in jobs] == ["finished"] * 2
    assert [job.worker_name for job in jobs] == ["twin", "twin.1"]
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    assert names(conn) == {"twin.1"}
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    assert names(conn) == set()
    assert conn.keys("rq:worker:*") == []


@pytest.mark.long
def test_the_dead_leave_the_list(workers: Workers, conn: redis.Redis) -> None:
    short = {"FUSION_LEASE": "0.5", "FUSION_REAP_INTERVAL": "0.1"}
    workers.start("sms", "--name", "victim", env=short).kill()
    assert names(conn) == {"victim"}
    survivor = workers.start("sms", "--name", "survivor", env=short)
    eventually(lambda: names(conn) == {"survivor"}, why=survivor.output)
    assert conn.keys("rq:worker:victim*") == []
    eventually(lambda: "worker victim is gone" in survivor.output)


@pytest.mark.long
def test_the_name_of_a_dead_worker_is_free_again(workers: Workers, conn: redis.Redis) -> None:
    short = {"FUSION_LEASE": "0.5"}
    workers.start("sms", "--name", "phoenix", env=short).kill()
    beat = int(conn.hget("rq:worker:phoenix", "beat_ms"))

    def lapsed() -> bool:
        seconds, micros = conn.time()
        return bool(seconds * 1000 + micros // 1000 - beat > 500)

    eventually(lapsed)
    workers.start("sms", "--name", "phoenix", env=short)
    assert names(conn) == {"phoenix"}


@pytest.mark.long
def test_a_worker_that_was_forgotten_registers_again(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("sms", "--name", "here", env={"FUSION_IDLE_WAIT": "0.2"})
    conn.flushall()
    eventually(lambda: names(conn) == {"here"}, why=worker.output)
    job = Queue("sms").enqueue(basic.add, 1, 2)
    assert (job.wait(10), job.result) == ("finished", 3)


@pytest.mark.long
def test_info_shows_workers_and_queues(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    workers.start("sms", "--name", "alpha", "--slots", "2")
    running = [Queue("sms").enqueue(basic.until_gone, str(gate)) for _ in range(2)]
    eventually(lambda: conn.zcard("rq:wip:sms") == 2)
    Queue("sms").enqueue(basic.noop, priority=2)
    shown = json.loads(info("--json"))
    (queue,) = shown["queues"]
    (worker,) = shown["workers"]
    assert (queue["name"], queue["by_priority"]["high"], queue["active_count"]) == ("sms", 1, 2)
    assert (worker["name"], worker["state"], worker["queues"]) == ("alpha", "busy", ["sms"])
    text = info()
    assert "alpha" in text
    assert "busy" in text
    gate.unlink()
    assert [job.wait(10) for job in running] == ["finished"] * 2


def test_another_programs_key_is_refused_at_the_start(workers: Workers, conn: redis.Redis) -> None:
    conn.set("rq:queue:sms", "another program's")
    worker = workers.start("sms", ready=False)
    assert worker.wait() == 1
    assert "rq:queue:sms is a string, not a zset" in worker.output
    assert "Traceback" not in worker.output


@pytest.mark.long
def test_an_evicting_server_is_refused_unless_accepted(workers: Workers, conn: redis.Redis) -> None:
    conn.config_set("maxmemory-policy", "allkeys-lru")
    try:
        worker = workers.start("sms", "--burst", ready=False)
        assert worker.wait() == 1
        assert "FUSION_ALLOW_EVICTION=1" in worker.output
        workers.burst("sms", env={"FUSION_ALLOW_EVICTION": "1"})
    finally:
        conn.config_set("maxmemory-policy", "noeviction")


def test_a_prefix_of_its_own(workers: Workers, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    from fusion.settings import use_settings

    guarded.allow_prefix(conn, "shop:")
    monkeypatch.setenv("FUSION_PREFIX", "shop:")
    use_settings(None)
    job = Queue("sms").enqueue(basic.add, 1, 2)
    workers.burst("sms", "--prefix", "shop:")
    assert (job.wait(0), job.result) == ("finished", 3)
    assert conn.keys("rq:*") == []


def test_commands_reach_a_worker_that_had_to_take_another_name(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("t", "--name", "twin", env={"FUSION_IDLE_WAIT": "0.2"})
    broker = broker_of(conn)
    with conn.pipeline() as pipe:  # its entry is gone, and another has the name before it notices
        pipe.delete("rq:worker:twin")
        pipe.hset("rq:worker:twin", mapping={"incarnation": "other", "lease_ms": 30_000, "beat_ms": int(time.time() * 1000)})
        pipe.execute()
    eventually(lambda: "twin.1" in names(conn), why="it registers again")
    eventually(lambda: broker.command("twin.1", '{"command": "shutdown"}'), why="it listens under its new name")
    assert worker.wait() == 0
