"""Health: /livez and /readyz from the worker's own loop over real sockets, and `health` for probes that run a command."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from fusion import Queue
from fusion.exceptions import ConfigurationError
from fusion.runtime.loop import Loop
from fusion.runtime.probes import HealthReport, Probes
from tests.cli.conftest import run_worker
from tests.jobs import basic
from tests.kit.private_redis import PrivateRedis
from tests.kit.waiting import eventually, unhurried
from tests.kit.workers import WorkerProcess, Workers
from tests.worker.test_settings import worker_hash


@dataclass
class Answer:
    status: int
    text: str
    kind: str


def get(url: str, **headers: str) -> Answer:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return Answer(response.status, response.read().decode(), response.headers["Content-Type"])
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read().decode(), error.headers["Content-Type"])


def url_of(worker: WorkerProcess) -> str:
    return eventually(lambda: re.findall(r"probes: (http://\S+)/livez", worker.output))[0]


def test_ready_and_alive(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("sms", "--slots", "3", "--probe-port", "0")
    url = url_of(worker)
    assert url.startswith("http://127.0.0.1:")
    assert get(f"{url}/livez") == Answer(200, "ok\n", "text/plain; charset=utf-8")
    assert get(f"{url}/readyz") == Answer(200, "ok\n", "text/plain; charset=utf-8")
    asked = get(f"{url}/readyz?json")
    assert asked.kind == "application/json"
    document = json.loads(asked.text)
    assert document.pop("worker").endswith(f".{worker.pid}")
    assert document == {"status": "ok", "reasons": [], "pid": worker.pid, "running": 0, "slots": 3, "suspended": False}
    assert json.loads(get(f"{url}/livez", Accept="text/html, application/json").text)["status"] == "ok"
    assert get(f"{url}/").status == 404
    assert get(f"{url}/").text == "/livez\n/readyz\n/metrics\n"


def test_not_ready_at_once_when_it_stops_but_alive(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate, started = tmp_path / "gate", tmp_path / "started"
    gate.touch()
    worker = workers.start("sms", "--probe-port", "0")
    url = url_of(worker)
    job = Queue("sms").enqueue(basic.until_gone, str(gate), str(started))
    eventually(started.exists)
    assert json.loads(get(f"{url}/readyz?json").text)["running"] == 1
    worker.signal(signal.SIGTERM)
    began = time.monotonic()
    eventually(lambda: get(f"{url}/readyz").status == 503)
    assert time.monotonic() - began < unhurried(1)
    assert get(f"{url}/readyz").text == "stopping\n"
    assert get(f"{url}/livez").status == 200
    gate.unlink()
    assert worker.wait() == 0
    assert job.wait(5) == "finished"
    with pytest.raises(urllib.error.URLError):
        get(f"{url}/livez")


@pytest.mark.long
def test_not_ready_while_redis_is_away(private_workers: Workers, private_redis: PrivateRedis) -> None:
    worker = private_workers.start("sms", "--probe-port", "0", env={"FUSION_IDLE_WAIT": "0.2", "FUSION_SOCKET_TIMEOUT": "0.3"})
    url = url_of(worker)
    assert get(f"{url}/readyz").status == 200
    private_redis.kill()
    eventually(lambda: get(f"{url}/readyz").status == 503)
    assert get(f"{url}/readyz").text.startswith("Redis is away for ")
    assert get(f"{url}/livez").status == 200  # a restart would not bring Redis back
    private_redis.revive()
    eventually(lambda: get(f"{url}/readyz").status == 200)


@pytest.mark.long
def test_not_ready_before_task_modules_are_loaded(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate, imported = tmp_path / "gate", tmp_path / "imported"
    gate.touch()
    env = {"FUSION_TASKS": "tests.jobs.gated", "GATED_WITNESS": str(imported), "GATED_GATE": str(gate), "FUSION_PROBE_PORT": "0"}
    worker = workers.start("sms", env=env, ready=False)
    url = url_of(worker)
    eventually(imported.exists)
    assert get(f"{url}/readyz") == Answer(503, "no fork server is ready\n", "text/plain; charset=utf-8")
    assert get(f"{url}/livez").status == 200
    gate.unlink()
    eventually(lambda: get(f"{url}/readyz").status == 200)


def test_quiet_is_not_ready_and_suspended_is(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("sms", "--probe-port", "0", env={"FUSION_IDLE_WAIT": "0.1"})
    url = url_of(worker)
    conn.set("rq:suspended", 1)
    eventually(lambda: json.loads(get(f"{url}/readyz?json").text)["suspended"])
    assert get(f"{url}/readyz").status == 200
    worker.signal(signal.SIGTSTP)
    eventually(lambda: get(f"{url}/readyz").text == "quiet\n")


@pytest.mark.long
def test_memory_throttle_is_not_ready(workers: Workers, conn: redis.Redis) -> None:
    env = {"FUSION_MEMORY_THROTTLE_THRESHOLD": "0.01", "FUSION_MEMORY_RESUME_THRESHOLD": "0.01"}
    url = url_of(workers.start("sms", "--probe-port", "0", "--memory-throttle", env=env))
    eventually(lambda: re.fullmatch(r"memory throttle: RAM \d+\.\d %\n", get(f"{url}/readyz").text))


@pytest.mark.long
def test_slow_rude_and_many_clients_do_not_hold_up_jobs_or_probes(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("sms", "--probe-port", "0")
    url = url_of(worker)
    address = ("127.0.0.1", urlsplit(url).port or 0)
    with ExitStack() as stack:
        for _ in range(100):
            idle = stack.enter_context(socket.create_connection(address, timeout=5))
            idle.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n")  # and no more
        began = time.monotonic()
        jobs = [Queue("sms").enqueue(basic.noop) for _ in range(20)]
        assert [job.wait(10) for job in jobs] == ["finished"] * 20
        assert get(f"{url}/livez").status == 200
        assert time.monotonic() - began < 5
        assert idle.recv(10) == b""  # after 2 s
    assert raw(address, b"nonsense\r\n\r\n").startswith(b"HTTP/1.0 400 ")
    assert raw(address, b"GET /livez\r\n\r\n").startswith(b"HTTP/1.0 400 ")
    assert raw(address, b"POST /livez HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 405 ")
    assert raw(address, b"GET /" + b"a" * 1100).startswith(b"HTTP/1.0 431 ")
    assert raw(address, b"\xff\x00\x1b[2J" * 10 + b"\n\n").startswith(b"HTTP/1.0 400 ")
    head = raw(address, b"HEAD /readyz HTTP/1.1\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n") and head.endswith(b"\r\n\r\n")
    assert get(f"{url}/livez").status == 200


def raw(address: tuple[str, int], request: bytes) -> bytes:
    """What comes back until the other side closes."""
    with socket.create_connection(address, timeout=5) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(4096):
            answer += chunk
    return answer


@pytest.mark.long
def test_a_port_that_is_taken_is_told_before_the_worker_registers(conn: redis.Redis, redis_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_worker("worker", "sms", "--probe-port", str(port), FUSION_REDIS_URL=redis_url)
    assert done.returncode == 1
    assert f"Error: probes can't listen at 127.0.0.1 port {port}: " in done.stderr
    assert "choose another --probe-port" in done.stderr
    assert conn.smembers("rq:workers") == set()


def test_a_host_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match=r"probes can't listen at no-such-host\.invalid port 0"):
        Probes(Loop(), {}).open("no-such-host.invalid", 0)


def test_over_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    loop = Loop()
    probes = Probes(loop, {"/livez": lambda: HealthReport(["sick", "and tired"])})
    try:
        url = probes.open("::1", 0)
    except ConfigurationError:
        pytest.skip("no IPv6 here")
    with socket.create_connection(("::1", urlsplit(url).port or 0), timeout=5) as client:
        client.sendall(b"GET /livez HTTP/1.0\r\n")
        loop.run_once(1)  # takes the connection
        loop.run_once(1)  # reads half a request
        client.sendall(b"\r\n")
        loop.run_once(1)
        assert client.recv(4096).startswith(b"HTTP/1.0 503 Service Unavailable\r\n")
    probes.close()


# -- `health`


@pytest.mark.long
def test_health_of_the_workers_here(workers: Workers, conn: redis.Redis, redis_url: str) -> None:
    done = run_worker("health", FUSION_REDIS_URL=redis_url)
    assert done.returncode == 3
    assert re.fullmatch(r"no worker of this host \(\S+\) is registered\n", done.stderr)
    worker = workers.start("sms")
    name = next(iter(conn.smembers("rq:workers"))).decode().removeprefix("rq:worker:")
    done = run_worker("health", FUSION_REDIS_URL=redis_url)
    assert (done.returncode, done.stdout) == (0, f"{name}: alive, idle\n")
    done = run_worker("health", "--worker", name, "--json", FUSION_REDIS_URL=redis_url)
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"], document["reasons"]) == (0, "ok", [])
    assert document["workers"][0]["name"] == name and document["workers"][0]["heartbeat_age"] < 10
    done = run_worker("health", "--worker", "other.1", FUSION_REDIS_URL=redis_url)
    assert (done.returncode, done.stderr) == (3, "no worker other.1 is registered\n")
    worker.signal(signal.SIGSTOP)  # it hangs
    conn.hset(f"rq:worker:{name}", "beat_ms", int(conn.hget(f"rq:worker:{name}", "beat_ms") or 0) - 61_000)
    done = run_worker("health", FUSION_REDIS_URL=redis_url)
    assert done.returncode == 3
    assert re.fullmatch(rf"{re.escape(name)}: silent for \d+ s, more than 60 s\n", done.stderr)
    assert run_worker("health", "--max-age", "600", FUSION_REDIS_URL=redis_url).returncode == 0
    document = json.loads(run_worker("health", "--json", FUSION_REDIS_URL=redis_url).stdout)
    assert (document["status"], document["workers"][0]["alive"]) == ("error", False)


@pytest.mark.long
def test_health_of_a_worker_elsewhere_does_not_count_here(conn: redis.Redis, redis_url: str, workers: Workers) -> None:
    worker = workers.start("sms")
    assert worker_hash(conn, worker)["hostname"] == socket.gethostname()
    (key,) = conn.smembers("rq:workers")
    worker.signal(signal.SIGSTOP)  # it writes its host again when it has something to note
    conn.hset(key, "hostname", "elsewhere")
    assert run_worker("health", FUSION_REDIS_URL=redis_url).returncode == 3
    name = key.decode().removeprefix("rq:worker:")
    assert run_worker("health", "--worker", name, FUSION_REDIS_URL=redis_url).returncode == 0
