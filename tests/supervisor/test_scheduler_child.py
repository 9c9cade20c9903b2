"""The scheduler that `start` keeps beside its workers."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from pathlib import Path

import pytest
import redis

from fusion import Job, Queue, Retry
from fusion.cron.scheduler import Scheduler
from fusion.store.read.cron_inspector import CronInspector
from tests.kit import guarded
from tests.kit.servers import free_port
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import runs_of, status_of
from tests.scheduler.harness import NOOP, each_once, set_mark, ticks_of, without_gap
from tests.supervisor.harness import Service, Services

_READY = re.compile(r"scheduler 1 \(pid (\d+)\) is ready")


def ready_schedulers(service: Service, times: int = 1) -> list[int]:
    """Pids of all schedulers that ever became ready, once there are this many."""
    eventually(lambda: len(_READY.findall(service.output)) >= times, 20, why=f"{times} schedulers became ready")
    return [int(pid) for pid in _READY.findall(service.output)]


@pytest.mark.long
def test_it_comes_up_with_the_workers_is_replaced_when_it_dies_and_ends_with_them(services: Services, conn: redis.Redis) -> None:
    cron = Scheduler(conn)
    cron.every(1, NOOP, id="e", queue="s", misfire="all")
    port = str(free_port())
    service = services.start(1, "s", env={"FUSION_PROBE_PORT": port}, scheduler=True)
    (pid,) = ready_schedulers(service)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
        assert answer.status == 200, "the port is the supervisor's, wherever it was named"
    assert [child.pid for child in service.schedulers()] == [pid]
    eventually(lambda: ticks_of(conn, "e"))
    service.schedulers()[0].kill()
    service.says("was killed by SIGKILL; the OOM killer, or a person [FUS-153]; a new one starts")
    assert ready_schedulers(service, 2)[0] == pid
    ran = len(ticks_of(conn, "e"))
    eventually(lambda: len(ticks_of(conn, "e")) >= ran + 2, why="it ticks on")
    eventually(lambda: conn.zcard("rq:queue:s") == 0, why="its worker runs them")
    service.note()
    service.signal(signal.SIGTERM)
    service.ended(0)
    assert without_gap(ticks_of(conn, "e"))
    each_once(conn, "e", ticks_of(conn, "e"))
    assert [info.pid for info in CronInspector(conn).schedulers()] == [pid], "only the killed one's entry is left"


@pytest.mark.long
def test_hup_replaces_it_after_its_successor_is_ready(services: Services, conn: redis.Redis) -> None:
    Scheduler(conn).every(1, NOOP, id="e", queue="s", misfire="all")
    service = services.start(1, "s", scheduler=True)
    (old,) = ready_schedulers(service)
    eventually(lambda: ticks_of(conn, "e"))
    service.signal(signal.SIGHUP)
    service.says("rolling restart is complete", timeout=30)
    _, new = ready_schedulers(service, 2)
    assert [child.pid for child in service.schedulers()] == [new]
    lines = service.output
    assert lines.index(f"scheduler 1 (pid {new}) is ready") < lines.index(f"scheduler 1 (pid {old}) ended")
    ran = len(ticks_of(conn, "e"))
    eventually(lambda: len(ticks_of(conn, "e")) > ran)
    assert without_gap(ticks_of(conn, "e"))


def test_the_supervisors_death_ends_it(services: Services, conn: redis.Redis) -> None:
    service = services.start(1, "s", scheduler=True)
    ready_schedulers(service)
    service.note()
    service.process.kill()
    service.process.wait(10)
    service.nothing_left(10)


@pytest.mark.long
def test_one_that_hangs_is_killed_and_replaced(services: Services, conn: redis.Redis) -> None:
    service = services.start(1, "s", scheduler=True, env={"FUSION_HANG_TIMEOUT": str(unhurried(2))})
    ready_schedulers(service)
    service.schedulers()[0].send_signal(signal.SIGSTOP)
    ready_schedulers(service, 2)
    service.says("has given no sign of life")


@pytest.mark.long
def test_without_it_there_are_only_workers(services: Services, conn: redis.Redis) -> None:
    service = services.start(1, "s", "--no-scheduler", scheduler=True)
    assert "keeps worker 1\n" in service.output
    assert service.schedulers() == []


@pytest.mark.long
def test_a_burst_has_none(services: Services, conn: redis.Redis) -> None:
    service = services.start(1, "s", "--burst", scheduler=True, ready=False)
    service.ended(0)
    assert "keeps worker 1\n" in service.output


@pytest.mark.long
def test_declarations_and_common_flags_reach_the_scheduler(services: Services, conn: redis.Redis, tmp_path: Path) -> None:
    guarded.allow_prefix(conn, "shop:")
    (tmp_path / "shop_plan.py").write_text(f"def register(scheduler):\n    scheduler.cron('@daily', '{NOOP}', id='nightly')\n")
    (tmp_path / "shop_settings.py").write_text("PREFIX = 'shop:'\nPROBE_PORT = 0\nNAME = 'box'\n")
    flags = ("-P", str(tmp_path), "-c", "shop_settings", "--schedule", "shop_plan", "--app", "shop", "--app-version", "1.10")
    service = services.start(2, "s", *flags, "--lease", "7", "--log-json", scheduler=True)
    eventually(lambda: "scheduler 1 (pid" in service.output and conn.hget("shop:cron:entry:nightly", "version") == b"1.10")
    assert conn.hget("shop:cron:entry:nightly", "app") == b"shop"
    assert conn.hget("shop:scheduler:process:box", "lease_ms") == b"7000"
    assert {name.decode() for name in conn.smembers("shop:workers")} == {"shop:worker:box", "shop:worker:box.1"}
    said = [json.loads(line)["message"] for line in service.output.splitlines()]
    urls = {message.removeprefix("probes: ").split("/livez")[0] for message in said if message.startswith("probes: ")}
    assert len(urls) == 4, "a port each for the supervisor, the workers and the scheduler"
    facts = [json.load(urllib.request.urlopen(f"{url}/livez?json", timeout=5)) for url in urls]
    assert [fact["scheduler"] for fact in facts if "scheduler" in fact] == ["box"]


@pytest.mark.long
def test_maintenance_brings_a_job_back_that_failed_for_a_passing_reason(
    services: Services, conn: redis.Redis, tmp_path: Path
) -> None:
    entry, seen = "redis_maintenance_on_failed_queue", tmp_path / "seen"
    env = {"FUSION_TASKS": "tests.jobs.basic,tasks.maintenance"}
    service = services.start(1, "-c", "instance", "--customq", "all", scheduler=True, env=env)
    ready_schedulers(service)
    assert Scheduler(conn).get(entry).app == "default"
    job = Queue("sms", conn).enqueue("tests.jobs.basic.flaky", str(seen), 1, retry=Retry(max=0))
    eventually(lambda: status_of(conn, job.id) == "failed")
    assert conn.zcard("rq:queue:failed") == 1
    set_mark(conn, entry, int(conn.time()[0]) - 600)
    eventually(lambda: status_of(conn, job.id) == "finished", 20, why="it was put back, and its second run succeeds")
    assert len(runs_of(seen, "run", job.id)) == 2
    (tick,) = ticks_of(conn, entry)
    assert tick % 300 == 0
    maintenance = Scheduler(conn).get(entry).last_job
    eventually(lambda: status_of(conn, maintenance) == "finished")
    assert (Job.fetch(maintenance, conn).result or {})["requeued"] == 1
    assert conn.zcard("rq:queue:failed") == 0
