"""The name of the server: it stops resolving, it leads elsewhere, and the name server falls silent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.sentinel import SentinelConnectionPool

from fusion.settings import Settings
from fusion.store.client.connections import connect
from fusion.store.client.dns import addresses
from tests.faults.rig.clock import why_not
from tests.faults.rig.names import HOST, Names
from tests.faults.rig.proxy import FaultProxy
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.workers import Workers
from tests.worker.test_probes import get, url_of
from tests.worker.test_redis_trouble import Jobs

ENV = {"FUSION_SOCKET_TIMEOUT": "0.5", "FUSION_IDLE_WAIT": "0.5"}

FULL = os.environ.get("FUSION_TEST_CRASH") == "full"
pytestmark = pytest.mark.timeout(600 if FULL else 180)
needs_shim = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture
def names(tmp_path: Path) -> Iterator[Names]:
    found = Names(tmp_path)
    yield found
    found.say("127.0.0.1")


def by_name(proxy: FaultProxy) -> str:
    return proxy.url.replace("127.0.0.1", HOST)


@needs_shim
@pytest.mark.parametrize("trouble", ["silent", *(["none", "again"] if FULL else [])])
def test_a_worker_whose_name_server_fails(proxy: FaultProxy, fleet: Workers, jobs: Jobs, names: Names, trouble: str) -> None:
    """Connections break at the same time: what runs goes on, probes are answered, and it is back when the name server is."""
    worker = fleet.start("r", "--probe-port", "0", env={**ENV, **names.env, "FUSION_LEASE": "20"}, url=by_name(proxy))
    url = url_of(worker)
    jobs.begun(jobs.gated())
    names.say(trouble)
    proxy.reset()
    jobs.gate.unlink()
    eventually(lambda: "Redis is away" in worker.output, 20, why="its outcome can't be committed")
    eventually(
        lambda: get(f"{url}/readyz").text.startswith("Redis is away for 2"), 30, why="it is not ready, and says so all the time"
    )
    assert get(f"{url}/livez").status == 200
    names.say("127.0.0.1")
    jobs.short(2)
    jobs.finished(30)
    assert (HOST in worker.output) or "name" in worker.output.partition("Redis is away")[2].splitlines()[0]
    assert worker.output.count("Redis is away") == worker.output.count("Redis is back") == 1


@needs_shim
def test_a_producer_gets_an_error_in_time_when_the_name_server_is_silent(proxy: FaultProxy, names: Names) -> None:
    """Its four attempts ask once; the answer, when it comes, serves the next caller."""
    names.say("silent")
    code = (
        "import sys, threading\n"
        "from fusion import Queue\nfrom fusion.exceptions import StoreUnavailable\n"
        "queue = Queue('r')\n"
        "try:\n    queue.enqueue('tests.jobs.basic.noop')\n"
        "except StoreUnavailable as error:\n    print(error, error.nothing_written, threading.active_count(), flush=True)\n"
        "sys.stdin.readline()\n"
        "while True:\n"
        "    try:\n        print(queue.enqueue('tests.jobs.basic.noop').get_status()); break\n"
        "    except StoreUnavailable: pass\n"
    )
    env = {**os.environ, **ENV, **names.env, "FUSION_REDIS_URL": by_name(proxy)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = process.stdout.readline()
        assert "the name server did not answer within 0.5 s" in told
        assert told.endswith("True 2\n"), "nothing was written, and one thread waits"
        names.say("127.0.0.1")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "queued\n"
    assert process.returncode == 0


def test_a_late_answer_is_the_next_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that needs longer than the limit each time must not keep everybody out for good."""
    answer, asked = threading.Event(), []

    def slow(host: str, *args: object, **kwargs: object) -> list[tuple[object, ...]]:
        asked.append(host)
        answer.wait(10)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))] * 2

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    for _ in range(3):
        with pytest.raises(socket.gaierror, match="did not answer within"):
            addresses(HOST, 0.02)
    answer.set()
    assert addresses(HOST, 10) == ["192.0.2.1"]
    assert asked == [HOST]
    assert addresses(HOST, 10) == ["192.0.2.1"]
    assert asked == [HOST] * 2, "an answer is used once: names move"


def test_an_address_is_not_looked_up_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    assert [addresses(host, 1) for host in ("127.0.0.1", "::1", "fe80::1%eth0")] == [["127.0.0.1"], ["::1"], ["fe80::1%eth0"]]


def test_an_unknown_host_name_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(socket.gaierror, match="this is not a host name"):
        addresses("a" * 70 + ".example", 10)
    for name in ("redis.invalid", ".."):
        with pytest.raises(socket.gaierror):
            addresses(name, 30)


def test_every_address_of_a_name_is_tried(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """`localhost` may be ::1 first, and the server listens on 127.0.0.1 only."""
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **k: found if host == HOST else real(host, *a, **k))
    conn = connect(by_name(proxy), "worker")
    assert conn.ping()
    held = conn.connection_pool.get_connection()
    assert held.host == HOST
    conn.close()


def test_sentinels_and_their_master_are_looked_up_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: answer.wait(20) and [])
    conn = connect(f"redis+sentinel://{HOST}:26379/mymaster", "worker", Settings(socket_timeout=0.05))
    assert isinstance(conn.connection_pool, SentinelConnectionPool)
    with pytest.raises(redis.ConnectionError):
        conn.ping()
    assert not answer.is_set()
    answer.set()
