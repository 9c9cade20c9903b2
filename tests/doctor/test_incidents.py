"""Ten incidents, staged with real processes: `doctor` and the verdict name the cause and the command that mends it, and it does."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from fusion import Queue, Retry
from fusion.cron.scheduler import Scheduler
from fusion.doctor.finding import Finding
from fusion.kernel.timeutil import to_iso
from fusion.settings import use_settings
from fusion.store.read.inspector import Inspector
from tests.courier.conftest import receiver as receiver
from tests.courier.conftest import world as world
from tests.courier.harness import Endpoint, World, allowing
from tests.doctor.conftest import Doctor, command_in, flags_of
from tests.jobs import basic
from tests.kit import guarded
from tests.kit.private_redis import PrivateRedis
from tests.kit.process import ROOT
from tests.kit.relays import Relays
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.kit.witnesses import status_of
from tests.kit.workers import Workers
from tests.scheduler.harness import due_since, entry_of
from tests.worker.throttled import PROGRAM

Mends = Callable[[Finding, str], str]
ONCE = Retry(max=0)


def ago(conn: redis.Redis, seconds: float) -> str:
    return to_iso(Inspector(conn).now() - timedelta(seconds=seconds))


@pytest.mark.long
def test_redis_evicts(private_redis: PrivateRedis) -> None:
    doctor = Doctor(private_redis.conn, private_redis.url)
    admin = guarded.admin_client(private_redis.url)
    try:
        admin.config_set("maxmemory-policy", "allkeys-lru")
        admin.config_set("maxmemory", admin.info()["used_memory"] + (1 << 20))
        eventually(
            lambda: [admin.set(f"rq:junk:{os.urandom(4).hex()}", "x" * 9999) for _ in range(99)] and admin.info()["evicted_keys"]
        )
        found = doctor.finds("eviction", "lose jobs", "allkeys-lru", "has evicted")
        lines = [shlex.split(line) for line in found.fix.split("\n")]
        assert [line[0] for line in lines] == ["redis-cli", "set"], "it has no configuration file to rewrite"
        assert lines[0][1:3] == ["-s", private_redis.url.removeprefix("unix://").partition("?")[0]]
        admin.config_set("maxmemory", 0)
        admin.execute_command(*lines[0][3:])
        (left,) = doctor.of("eviction")
        assert left.level == "warn" and "jobs may be lost" in left.what
        admin.execute_command(*shlex.split(left.fix)[3:])
        doctor.well("eviction")
    finally:
        admin.close()


@pytest.mark.long
@pytest.mark.gate
def test_a_worker_can_not_load_its_tasks(doctor: Doctor, workers: Workers, tmp_path: Path) -> None:
    module, why = tmp_path / "shop.py", "shop: ModuleNotFoundError: No module named 'nowhere'"
    module.write_text("import nowhere\n")
    job = Queue("sms").enqueue("shop.send", priority="high")
    env = {"FUSION_TASKS": "shop", "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    workers.start("sms", ready=False, env=env)
    doctor.finds("workers", f"can't load tasks: {why}; jobs of sms wait for it")
    doctor.finds("queues", "sms: 1 job waits", "its tasks can't be loaded by ", why)
    shown = doctor.run("run_worker.py info").stdout
    assert f" can't load tasks: {why}; jobs wait in sms" in shown and "unhealthy" in shown
    health = doctor.run("run_worker.py health")
    assert (health.returncode, f"can't load tasks: {why}" in health.stderr) == (3, True)
    module.write_text("def send(): ...\n")
    assert job.wait(20) == "finished", "it tries again by itself"
    doctor.well("workers", "queues")
    assert doctor.run("run_worker.py health").returncode == 0


def test_nobody_serves_a_queue(doctor: Doctor, workers: Workers) -> None:
    job = Queue("sms").enqueue(basic.noop)
    found = doctor.finds("queues", "sms: 1 job waits", "no live worker serves it")
    line = command_in(found.fix, "worker")
    assert line == "run_worker.py worker sms --tasks tests.jobs.basic"
    workers.start(*flags_of(line))
    assert job.wait(10) == "finished"
    doctor.well("queues")
    assert doctor.verdict().word == "healthy"


@pytest.mark.long
def test_a_deploy_fails(doctor: Doctor, mends: Mends, workers: Workers, tmp_path: Path) -> None:
    module = tmp_path / "shop_of_doctor.py"
    good = "def send(text):\n    return text.upper()\n"
    module.write_text(good.replace("upper", "uper"))
    queue = Queue("mail")
    jobs = [queue.enqueue("shop_of_doctor.send", f"text {n}", retry=ONCE) for n in range(6)]
    env = {"FUSION_TASKS": "shop_of_doctor"}
    broken = workers.start("mail", "-P", str(tmp_path), env=env)
    eventually(lambda: all(status_of(doctor.conn, job.id) == "failed" for job in jobs))
    found = doctor.finds("failing", "mail: 6 jobs failed", "100 % of what ended", "AttributeError", "shop_of_doctor")
    assert found.about == "mail"
    broken.stop()
    module.write_text(good)  # rolled back
    workers.start("mail", "-P", str(tmp_path), env=env)
    assert "AttributeError" in doctor.mend(command_in(found.fix, "failures"))
    mends(found, "requeue")
    eventually(lambda: not any(status_of(doctor.conn, job.id) == "failed" for job in jobs), why="an operation takes its time")
    assert {job.wait(10) for job in jobs} == {"finished"}
    doctor.well("failing", "queues")


@pytest.mark.long
def test_a_concurrency_key_is_stuck(doctor: Doctor, mends: Mends, workers: Workers, tmp_path: Path) -> None:
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    queue = Queue("sync")
    limit = {"concurrency_key": "user:42", "max_concurrent": 1}
    first = queue.enqueue(basic.until_gone, str(gate), str(seen), **limit)
    second = queue.enqueue(basic.noop, **limit)
    workers.start("sync", "--slots", "2")
    eventually(seen.exists)
    doctor.conn.hset(f"rq:job:{first.id}", "started_at", ago(doctor.conn, 1200))
    found = doctor.finds("stuck", "user:42 is stuck: 1 job waits", f"held by {first.id} (started in sync)")
    line = command_in(found.fix, "limit release")
    assert flags_of(line) == ["release", "user:42", first.id]
    told = mends(found, "limit release")
    assert "no longer holds a slot" in told or f"Release user:42 of {first.id}: done" in told
    assert second.wait(10) == "finished"
    doctor.well("stuck", "queues")
    gate.unlink()
    assert first.wait(10) == "finished"


@pytest.mark.long
@pytest.mark.parametrize("by_button", [False, True])
def test_the_host_of_a_callback_hangs(doctor: Doctor, by_button: bool, world: World, receiver: object) -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    server = receiver(endpoint)  # type: ignore[operator]
    url = f"http://127.0.0.1:{server.port}/hook"
    world.process(allowing(server))
    world.end(url, 3)
    eventually(lambda: endpoint.at_once)
    for delivery in world.deliveries():
        doctor.conn.hset(f"rq:job:{delivery}", "created_at", ago(doctor.conn, 700))
    found = doctor.finds("callbacks", "3 callbacks are not delivered", "the oldest for 12 min", "127.0.0.1", level="warn")
    assert "run_worker.py callbacks list --status retrying" in found.fix
    if by_button:
        assert "Retry 3 callbacks: " in doctor.press(
            found
        )  # while it is found: they may be delivered as soon as the host answers
        endpoint.gate.set()
    else:
        endpoint.gate.set()
        ended = doctor.run(command_in(found.fix, "callbacks retry"))
        assert ended.returncode == 0 or "it was delivered" in ended.stderr
    world.settled(finished=3)
    doctor.well("callbacks")


@pytest.mark.long
def test_the_relay_is_down(doctor: Doctor, relays: Relays, tmp_path: Path) -> None:
    env = {"FUSION_EVENTS_FILE": str(tmp_path / "events.jsonl")}
    relay = relays.start(env=env)
    Queue("sms").enqueue(basic.noop)
    eventually(lambda: (tmp_path / "events.jsonl").exists() and "queued" in (tmp_path / "events.jsonl").read_text())
    relay.kill()
    Queue("sms").enqueue(basic.noop)
    found = doctor.finds("relays", "no relay is alive for file", "behind")
    line = command_in(found.fix, "relay")
    relays.start(*flags_of(line), env=env)
    eventually(lambda: (tmp_path / "events.jsonl").read_text().count('"queued"') >= 2, why="what it missed is delivered")
    doctor.well("relays", "sinks")


@pytest.mark.long
def test_a_poison_job(doctor: Doctor, mends: Mends, workers: Workers, tmp_path: Path) -> None:
    job = Queue("k").enqueue(basic.signal_self, int(signal.SIGKILL), str(tmp_path / "seen"))
    workers.start("k", env={"FUSION_MAX_LOST": "2"})
    eventually(lambda: status_of(doctor.conn, job.id) == "failed")
    found = doctor.finds("poison", job.id, "SIGKILL", "poison pill", level="warn")
    mends(found, "quarantine")
    doctor.well("poison")
    assert "run_worker.py requeue " + job.id in found.fix


@pytest.mark.long
@pytest.mark.parametrize(("off", "level", "said"), [(9, "warn", "ahead of"), (-3600, "fail", "behind")])
def test_a_clock_is_wrong(doctor: Doctor, tmp_path: Path, off: int, level: str, said: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import time\nreal = time.time\ntime.time = lambda: real() + {off}\n")
    command = [sys.executable, "run_worker.py", "doctor", "--strict"]
    env = {**os.environ, "FUSION_REDIS_URL": doctor.url}
    skewed = subprocess.run(
        command, cwd=ROOT, env={**env, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert skewed.returncode == 3
    assert f"{level.upper()}  clocks: the clock of this machine is {abs(off):,} s {said} that of Redis" in skewed.stdout
    assert "-> timedatectl set-ntp true" in skewed.stdout
    right = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert "clocks" not in right.stdout
    doctor.well("clocks")


@pytest.mark.long
def test_memory_is_scarce(doctor: Doctor, workers: Workers, tmp_path: Path) -> None:
    memory = tmp_path / "percent"
    memory.write_text("95")
    env = {"MEMORY_FILE": str(memory), "MEMORY_CHECK_INTERVAL": "0.05"}
    workers.start("sms", env=env, program=PROGRAM)
    eventually(lambda: doctor.of("workers"))
    job = Queue("sms").enqueue(basic.noop)
    doctor.finds("workers", "memory is scarce", "RAM 95.0 %", level="warn")
    found = doctor.finds("queues", "sms: 1 job waits", "memory is scarce", "RAM 95.0 %")
    assert "free memory on " in found.fix
    memory.write_text("50")
    assert job.wait(10) == "finished"
    doctor.well("workers", "queues")


@pytest.mark.long
def test_cron_missed_ticks(doctor: Doctor, mends: Mends, workers: Workers, schedulers: Schedulers) -> None:
    cron = Scheduler(doctor.conn)
    due_since(cron, doctor.conn, "nightly", ticks=5, misfire="skip")
    found = doctor.finds("schedulers", "no scheduler is alive: 1 cron entry waits")
    schedulers.start(*flags_of(command_in(found.fix, "scheduler")))
    eventually(lambda: entry_of(doctor.conn, "nightly").missed == 5)
    doctor.well("schedulers")
    missed = doctor.finds("cron", "nightly missed ticks", "(5 in all)", level="warn")
    workers.start("q")
    mends(missed, "cron run")
    eventually(lambda: status_of(doctor.conn, entry_of(doctor.conn, "nightly").manual_job) == "finished")
    doctor.well("cron", "schedulers")


@pytest.fixture(autouse=True)
def _settings() -> object:
    yield
    use_settings(None)
