"""A Redis that answers and refuses: a worker waits, logs once what to do, and goes on; a producer gets the error at once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis
from redis import exceptions as errors

from fusion import Queue
from fusion.cron.scheduler import Scheduler
from fusion.exceptions import ConfigurationError, FusionError, StoreFull, StoreUnavailable
from fusion.store.client.connections import connect
from fusion.store.client.server import read_server
from fusion.store.layout.acl import acl_rules
from fusion.store.redis_server.binary import ServerBinary
from tests.cli.conftest import run_worker
from tests.faults.rig.proxy import FaultProxy
from tests.jobs import basic
from tests.kit.private_redis import PrivateRedis
from tests.kit.schedulers import Schedulers
from tests.kit.servers import SpawnedServer
from tests.kit.waiting import eventually
from tests.kit.workers import Workers
from tests.worker.test_probes import get, url_of
from tests.worker.test_redis_trouble import QUICK, Jobs

FULL = os.environ.get("FUSION_TEST_CRASH") == "full"
pytestmark = pytest.mark.timeout(600 if FULL else 180)
PATIENT = {"FUSION_SOCKET_TIMEOUT": "2", "FUSION_IDLE_WAIT": "0.3"}


class Server(SpawnedServer):
    """A server without users or a password as yet, whatever this test run does with its own."""

    def __init__(self, binary: str, *args: str) -> None:
        super().__init__(binary, "--save", "", *args)
        self.admin = self.client()


@pytest.fixture
def server(server_binary: ServerBinary) -> Iterator[Server]:
    found = Server(server_binary.path)
    yield found
    found.admin.close()
    found.close()


@pytest.fixture
def on_server(server: Server, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(server.url, tmp_path)
    yield found
    found.stop()


def lines_about_redis(output: str) -> list[str]:
    return [line for line in output.splitlines() if re.search(r"Redis is (away|back)|a person is needed", line)]


def refused(queue: Queue) -> FusionError:
    with pytest.raises(FusionError) as caught:
        queue.enqueue_many([Queue.prepare_data(basic.noop) for _ in range(3)])
    return caught.value


def waits(error: FusionError) -> bool:
    """Waiting helps, and nothing of the call was done."""
    return isinstance(error, StoreUnavailable) and error.nothing_written


# -- answers that pass by themselves


@pytest.mark.parametrize(
    "reply",
    [
        "LOADING Redis is loading the dataset in memory",
        *(["MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk"] if FULL else []),
    ],
    ids=lambda reply: reply.split()[0],
)
def test_refusals_for_a_while(proxy: FaultProxy, fleet: Workers, jobs: Jobs, reply: str) -> None:
    """Told once by the worker, whatever it asks meanwhile; of what a producer was refused nothing exists."""
    worker = fleet.start("--customq", "all", "--slots", "2", "--probe-port", "0", env=PATIENT)
    url = url_of(worker)
    jobs.begun(jobs.gated())
    queue = Queue("r", connect(proxy.url))
    before = jobs.conn.dbsize()
    for command in ("turn", "extend", "enqueue", "reap", "promote", "register") if reply.startswith("MISCONF") else "*":
        proxy.on(command, reply, times=float("inf"))  # a server whose disk is full answers those who only look
    assert waits(refused(queue))
    jobs.gate.unlink()
    eventually(lambda: re.match(r"Redis is away for [2-9] s", get(f"{url}/readyz").text), 30, why="not ready, all the time")
    proxy.lift()
    jobs.short(2)
    jobs.finished(20)
    eventually(lambda: get(f"{url}/readyz").status == 200, 20)
    told = lines_about_redis(worker.output)
    assert len(told) == 2, told
    assert " ".join(reply.split()[1:5]) in told[0]
    assert jobs.conn.dbsize() >= before
    assert jobs.conn.hlen("rq:worker:none") == 0
    assert len(list(jobs.conn.scan_iter("rq:job:*", count=1000))) == len(jobs.all), "a part of what was refused exists"


def test_a_server_that_is_demoted_and_promoted_again(
    private_redis: PrivateRedis, private_workers: Workers, private_schedulers: Schedulers, tmp_path: Path
) -> None:
    """It answers all who only look, which must not look like the end of the outage."""
    jobs = Jobs(private_redis.conn, tmp_path)
    worker = private_workers.start("--customq", "all", "--slots", "2", "--probe-port", "0", env=PATIENT)
    scheduler = private_schedulers.start(env=PATIENT)
    Scheduler(jobs.conn).every(1, basic.noop, id="e", queue="other")
    url = url_of(worker)
    jobs.begun(jobs.gated())
    jobs.conn.replicaof("127.0.0.1", "1")
    try:
        assert waits(refused(jobs.queue))
        jobs.gate.unlink()
        eventually(lambda: re.match(r"Redis is away for [3-9] s", get(f"{url}/readyz").text), 30, why="not ready, all the time")
        scheduler.says("Redis is away")
    finally:
        jobs.conn.replicaof("NO", "ONE")
    jobs.short(3)
    jobs.finished(20)
    eventually(lambda: get(f"{url}/readyz").status == 200, 20)
    scheduler.says("Redis is back")
    for process in (worker, scheduler):
        told = lines_about_redis(process.output)
        assert len(told) == 2, told


# -- a disk that is full


@pytest.fixture
def disk(server_binary: ServerBinary, server: Server) -> Iterator[redis.Redis]:
    """A server that survives a file size limit, as it would a full disk."""
    home = server.home / "full"
    home.mkdir()
    # Python ignores SIGXFSZ, and what is ignored stays so in a new program.
    process = subprocess.Popen(
        [
            server_binary.path,
            "--port",
            "0",
            "--unixsocket",
            str(home / "s"),
            "--dir",
            str(home),
            "--save",
            "",
            "--appendonly",
            "yes",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        restore_signals=False,
    )
    try:
        eventually((home / "s").exists, why="it listens")
        with redis.Redis(unix_socket_path=str(home / "s"), protocol=2) as conn:
            yield conn
    finally:
        process.kill()
        process.wait(10)


def test_a_disk_that_is_full_and_then_is_not(disk: redis.Redis, tmp_path: Path) -> None:
    url = f"unix://{disk.connection_pool.connection_kwargs['path']}"
    jobs = Jobs(connect(url), tmp_path)
    workers = Workers(url, tmp_path)
    pid = int(disk.info("server")["process_id"])

    def limit(size: int) -> None:
        psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE, (size, psutil.RLIM_INFINITY))

    try:
        worker = workers.start("r", "--slots", "2", env=PATIENT)
        jobs.begun(jobs.gated())
        jobs.short(3)
        eventually(lambda: jobs.conn.zcard("rq:finished:r") == 3)
        assert not read_server(disk).unsaved
        assert run_worker("health", FUSION_REDIS_URL=url).stderr == ""
        limit(disk.info("persistence")["aof_current_size"] + 100)
        eventually(lambda: _misconf(disk), 20, why="the server can't write")
        assert waits(refused(jobs.queue))
        jobs.gate.unlink()
        eventually(lambda: "MISCONF" in worker.output, 20, why="its outcome can't be committed")
        assert read_server(disk).unsaved
        assert "Redis can't save" in run_worker("health", FUSION_REDIS_URL=url).stderr
        limit(psutil.RLIM_INFINITY)
        jobs.short(3)
        jobs.finished(30)
        assert not read_server(disk).unsaved
        assert len(lines_about_redis(worker.output)) == 2, worker.output
    finally:
        limit(psutil.RLIM_INFINITY)
        workers.stop()
        jobs.conn.close()


def _misconf(conn: redis.Redis) -> bool:
    try:
        conn.set("rq:filler", "x" * 1000)
    except errors.ResponseError as error:
        return str(error).startswith("MISCONF")
    return False


# -- memory


def test_memory_that_ends_under_load(server: Server, on_server: Workers, tmp_path: Path) -> None:
    jobs = Jobs(server.admin, tmp_path)
    workers = [on_server.start("r", "--slots", "2", "--disable-job-desc-logging", env=PATIENT) for _ in range(2)]
    jobs.gate.unlink()
    queue = Queue("r", connect(server.url))
    jobs.short(100)
    eventually(lambda: jobs.conn.zcard("rq:finished:r") >= 10, why="jobs run")
    jobs.conn.config_set("maxmemory", 1)
    for _ in range(3):
        assert isinstance(refused(queue), StoreFull)
    eventually(lambda: jobs.conn.zcard("rq:finished:r") == 100, 40, why="what was accepted is run and told")
    assert len(list(jobs.conn.scan_iter("rq:job:*", count=1000))) == 100
    jobs.conn.config_set("maxmemory", 0)
    jobs.short(3)
    jobs.finished(20)
    assert "away" not in "".join(worker.output for worker in workers)


# -- rights


def test_a_password_that_was_changed_and_is_put_right_in_the_file(server: Server, on_server: Workers, tmp_path: Path) -> None:
    jobs = Jobs(server.admin, tmp_path)
    file = tmp_path / "password"
    file.write_text("old")
    jobs.conn.config_set("requirepass", "old")
    worker = on_server.start("r", env={**PATIENT, "FUSION_REDIS_PASSWORD_FILE": str(file)})
    jobs.begun(jobs.gated())
    jobs.conn.config_set("requirepass", "new")
    jobs.conn.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    jobs.gate.unlink()
    eventually(lambda: "refused the login" in worker.output, 20, why="a person can read it")
    told = lines_about_redis(worker.output)
    assert "correct user and password in FUSION_REDIS_URL (or --url), or the password's file" in told[0]
    assert "old" not in told[0]
    file.write_text("new")
    jobs.short(2)
    jobs.finished(20)
    assert len(lines_about_redis(worker.output)) == 2


def test_a_right_that_is_taken_away_and_given_back(server: Server, on_server: Workers, tmp_path: Path) -> None:
    """In effect at once, on the connections that there are; the subscription is cut, and refused until it is allowed again."""
    jobs = Jobs(server.admin, tmp_path)
    admin = server.admin

    def rules(*words: str) -> None:
        admin.execute_command("ACL", "SETUSER", "fusion", *words)

    rules("on", ">pw", *acl_rules().split())
    url = server.url + "?username=fusion&password=pw"
    worker = on_server.start("r", env=PATIENT, url=url)
    channel = next(iter(admin.pubsub_channels("rq:pubsub:*") or [eventually(lambda: admin.pubsub_channels("rq:pubsub:*"))[0]]))
    jobs.begun(jobs.gated())
    rules("-evalsha", "-eval", "resetchannels")
    jobs.gate.unlink()
    eventually(lambda: "refused a command" in worker.output, 20, why="a person can read it")
    assert "grant the ACL user what docs/operations.md lists" in lines_about_redis(worker.output)[0]
    eventually(lambda: not admin.pubsub_numsub(channel)[0][1], 20, why="the subscription is cut")
    assert isinstance(refused(Queue("r", connect(url))), ConfigurationError)
    rules("+evalsha", "+eval")
    jobs.short(2)
    jobs.finished(20)
    assert len(lines_about_redis(worker.output)) == 2
    rules("&rq:*")
    eventually(lambda: admin.pubsub_numsub(channel)[0][1], 20, why="commands are heard again")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


# -- a server that forgets


def test_scripts_that_are_forgotten_under_load(conn: redis.Redis, fleet: Workers, tmp_path: Path) -> None:
    jobs = Jobs(conn, tmp_path)
    jobs.gate.unlink()
    workers = [fleet.start("r", "--slots", "2", "--disable-job-desc-logging", env=QUICK) for _ in range(2)]
    for _ in range(15):
        jobs.short(5)
        conn.script_flush()
    jobs.finished(40)
    assert conn.zcard("rq:finished:r") == 75
    assert "error" not in "".join(worker.output for worker in workers).lower()


def test_a_redis_that_forgets_everything_under_load(conn: redis.Redis, fleet: Workers, tmp_path: Path) -> None:
    """What it forgot is gone; what it accepts afterwards is run, once, and nothing of the old comes back in pieces."""
    jobs = Jobs(conn, tmp_path)
    jobs.gate.unlink()
    env = {**QUICK, "FUSION_LEASE": "2"}
    workers = [fleet.start("r", "--slots", "2", "--disable-job-desc-logging", env=env) for _ in range(2)]
    for _ in range(3):
        jobs.short(60)
        eventually(lambda: conn.zcard("rq:finished:r") >= 20, 20, why="jobs run")
        conn.flushall()
        jobs.all.clear()
    jobs.short(60)
    jobs.finished(40)
    eventually(lambda: conn.scard("rq:workers") == 2, 20, why="both are registered again")
    assert all(worker.process.poll() is None for worker in workers)
    assert conn.zcard("rq:finished:r") == 60
    stray = {key.decode()[len("rq:job:") :] for key in conn.scan_iter("rq:job:*", count=1000)} - {job.id for job in jobs.all}
    assert not stray, "hashes of forgotten jobs"
    assert not conn.zcard("rq:wip:r")
