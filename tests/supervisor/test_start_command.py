"""The command `start`: its flags are those of `worker`, checked before anything is started, and handed on."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from fusion import Queue
from fusion.cli.main import cli
from fusion.store.client.connections import connect
from fusion.store.redis_server.instance import EmbeddedRedis
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.witnesses import status_of
from tests.supervisor.harness import Services


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--slots", "many"), "--slots"),
        (("--no-such-flag",), "--no-such-flag"),
        (("--shutdown-timeout", "soon"), "--shutdown-timeout"),
        (("--max-jobs", "0"), "--max-jobs"),
        (("--max-memory", "lots"), "--max-memory"),
        (("-n", "0"), "--num-workers"),
        (("--customq", "a b"), "a b"),
        (("--worker-class", "x.Y"), "no classes to exchange"),
        (("--with-scheduler",), "every worker moves due jobs"),
    ],
)
def test_a_wrong_flag_is_told_at_once(args: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(cli, ["start", *args])
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_wrong_flag_starts_nothing(redis_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "run_worker.py", "start", "--slots", "many"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    assert "supervisor" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_task_pattern_that_is_none_is_told_at_once(redis_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "run_worker.py", "start", "--tasks", "9x"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("--tasks '9x'") == 1


@pytest.mark.long
def test_flags_go_to_every_worker_but_those_of_the_supervisor(services: Services, conn: redis.Redis, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    args = ("a", "--customq", "b,c", "--slots", "2", "--name", "box", "-q", "--pid", str(pid_file), "--tasks", "tests.jobs.gated")
    service = services.start(2, *args, ready=False)
    eventually(lambda: len(conn.smembers("rq:workers")) == 2)
    assert {name.decode() for name in conn.smembers("rq:workers")} == {"rq:worker:box", "rq:worker:box.1"}
    assert conn.hget("rq:worker:box", "queues") == b"a,b,c"
    assert pid_file.read_text() == str(service.pid)
    (line,) = {" ".join(worker.cmdline()[1:]) for worker in service.workers()}
    assert (
        line == "run_worker.py worker --customq b,c --name box --slots 2 --tasks tests.jobs.gated --quiet -- a" or "-- a" in line
    )
    service.signal(signal.SIGTERM)
    service.ended(0)
    assert not pid_file.exists()


@pytest.mark.long
def test_a_burst_ends_when_the_queues_are_empty(services: Services, conn: redis.Redis) -> None:
    queue = Queue("s", conn)
    jobs = [queue.enqueue("tests.jobs.basic.noop") for _ in range(20)]
    service = services.start(2, "s", "--burst", ready=False)
    service.ended(0)
    assert {status_of(conn, job.id) for job in jobs} == {"finished"}


@pytest.mark.long
def test_a_burst_with_a_limit_goes_on_until_they_are(services: Services, conn: redis.Redis) -> None:
    queue = Queue("s", conn)
    jobs = [queue.enqueue("tests.jobs.basic.noop") for _ in range(7)]
    service = services.start(1, "s", "--burst", "--max-jobs", "3", ready=False)
    service.ended(0)
    assert {status_of(conn, job.id) for job in jobs} == {"finished"}


@pytest.mark.long
def test_it_starts_from_any_directory(redis_url: str, conn: redis.Redis, tmp_path: Path) -> None:
    job = Queue("s", conn).enqueue("tests.jobs.basic.noop")
    done = subprocess.run(
        [sys.executable, str(ROOT / "run_worker.py"), "start", "s", "--burst", "-P", str(ROOT), "--tasks", "tests.jobs.basic"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert status_of(conn, job.id) == "finished"


def test_the_built_in_redis_outlives_dead_workers_and_the_supervisor(tmp_path: Path) -> None:
    home = tempfile.mkdtemp(prefix="fus", dir="/tmp")
    server = EmbeddedRedis(home)
    services = Services("", tmp_path)
    try:
        service = services.start(1, "s", "--embedded", env={"FUSION_HOME": home, "FUSION_REDIS_URL": ""})
        pid = server.status().pid
        assert pid is not None
        with connect(server.url) as conn:
            service.workers()[0].kill()
            service.until_ready(2)
            job = Queue("s", conn).enqueue("tests.jobs.basic.noop")
            eventually(lambda: status_of(conn, job.id) == "finished")
            assert len(conn.smembers("rq:workers")) == 1
        service.signal(signal.SIGTERM)
        assert service.process.wait(15) == 0, service.output
        assert server.status().pid == pid
    finally:
        services.stop()
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.long
def test_the_port_of_the_probes_is_the_supervisors(services: Services, conn: redis.Redis) -> None:
    service = services.start(2, "s", "--probe-port", "0", "--log-json")
    first = next(json.loads(line) for line in service.output.splitlines() if "probes:" in line)
    url = str(first.get("message", first)).split("probes: ")[1].split("/livez")[0]
    assert urllib.request.urlopen(f"{url}/livez", timeout=5).status == 200
    eventually(lambda: urllib.request.urlopen(f"{url}/readyz", timeout=5).status == 200)
    for worker in service.workers():
        worker.send_signal(signal.SIGSTOP)
    service.workers()[0].kill()

    def unready() -> bool:
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=5)
        except urllib.error.HTTPError as error:
            return error.code == 503
        return False

    eventually(unready, interval=0.001)
    assert service.process.poll() is None


@pytest.mark.long
def test_the_flags_of_warm_processes_reach_every_worker(services: Services, conn: redis.Redis) -> None:
    flags = ("--horses", "1", "--max-jobs-per-horse", "3", "--claim-ahead", "0")
    services.start(2, "--customq", "w", *flags, env={"FUSION_TASKS": "tests.jobs.warm"})
    jobs = Queue("w", conn).enqueue_many([Queue.prepare_data("tests.jobs.warm.nap", (0.02,)) for _ in range(30)])
    eventually(lambda: {status_of(conn, job.id) for job in jobs} == {"finished"}, 20)
    runs = Counter(job.result for job in (Queue("w", conn).fetch_job(job.id) for job in jobs) if job is not None)
    assert set(runs.values()) <= {1, 2, 3}
    assert max(runs.values()) == 3, "a process runs several, and no more than it may"
    by = Counter(str(conn.hget(f"rq:job:{job.id}", "worker_name")) for job in jobs)
    assert len(by) == 2, "both workers took part"


@pytest.mark.long
def test_queues_have_executors_of_their_own(services: Services, conn: redis.Redis, tmp_path: Path) -> None:
    """Each in workers of its own, which are given the numbers that are for them."""
    flags = ("--executor", "c=asyncio", "--executor", "t=thread", "--concurrency", "7", "--threads", "2", "--slots", "2")
    services.start(1, "--customq", "c,t,p", *flags, env={"FUSION_TASKS": "tests.jobs.crowd"})
    jobs = {name: [Queue(name, conn).enqueue("tests.jobs.crowd.plain_where") for _ in range(6)] for name in "ctp"}
    everything = [job.id for some in jobs.values() for job in some]
    eventually(lambda: {status_of(conn, job) for job in everything} == {"finished"}, 20)
    workers = {name: {str(conn.hget(f"rq:job:{job.id}", "worker_name")) for job in some} for name, some in jobs.items()}
    assert len(set[str]().union(*workers.values())) == 3
    pids = {name: {job.result[0] for job in some} for name, some in jobs.items()}
    assert {name: len(found) for name, found in pids.items()} == {"c": 1, "t": 1, "p": 6}
