"""deploy/redis/start.sh with a real server, and a worker that logs in as compose's does."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fusion import Queue
from fusion.store.redis_server.binary import ServerBinary
from tests.kit.process import ROOT
from tests.kit.waiting import eventually

PASSWORD = "0123456789abcdef" * 4


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fus", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def env(place: Path, server_binary: ServerBinary) -> dict[str, str]:
    (place / "bin").mkdir()
    (place / "bin" / "redis-server").symlink_to(server_binary.path)
    (place / "password").write_text(f"{PASSWORD}\n")
    (place / "tmp").mkdir()
    own = {"FUSION_REDIS_PASSWORD_FILE": str(place / "password"), "TMPDIR": str(place / "tmp")}
    return {**os.environ, **own, "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}


def start(env: dict[str, str], place: Path) -> subprocess.Popen[bytes]:
    command = ["sh", str(ROOT / "deploy" / "redis" / "start.sh"), "--port", "0", "--unixsocket", str(place / "sock")]
    return subprocess.Popen(
        [*command, "--save", "", "--dir", str(place)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def login(place: Path, **who: str) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(place / "sock"), retry=Retry(NoBackoff(), 0), **who)


def serves(conn: redis.Redis) -> bool:
    """False while the socket is there and nothing listens at it yet."""
    try:
        return bool(conn.ping())
    except redis.ConnectionError:
        return False


def test_a_worker_works_and_nobody_else_gets_in(env: dict[str, str], place: Path) -> None:
    server = start(env, place)
    try:
        eventually((place / "sock").exists)
        conn = login(place, username="fusion", password=PASSWORD)
        eventually(lambda: serves(conn), why="it serves")
        with pytest.raises(redis.AuthenticationError):
            login(place).ping()
        for secret in ("", "PASSWORD_SHA256", "wrong"):
            with pytest.raises(redis.AuthenticationError):
                login(place, username="fusion", password=secret or "nopass").ping()
        with pytest.raises(redis.exceptions.NoPermissionError):
            conn.flushall()
        job = Queue("sms", conn).enqueue("tests.jobs.basic.noop")
        command = [sys.executable, "run_worker.py", "worker", "--customq", "sms", "--burst", "--tasks", "tests.jobs.basic"]
        url = f"unix://fusion@{place / 'sock'}?db=0"
        done = subprocess.run(
            command, cwd=ROOT, env={**env, "FUSION_REDIS_URL": url}, capture_output=True, text=True, timeout=50, check=False
        )
        assert done.returncode == 0, done.stderr
        assert job.get_status() == "finished"
        shown = Path(f"/proc/{server.pid}/cmdline")
        assert not shown.exists() or PASSWORD.encode() not in shown.read_bytes()
        (users,) = (place / "tmp").rglob("users.acl")
        assert PASSWORD not in users.read_text()
        assert users.stat().st_mode & 0o077 == 0
    finally:
        server.terminate()
        server.communicate(timeout=10)


@pytest.mark.parametrize("there", [True, False])
def test_without_a_password_it_does_not_start(env: dict[str, str], place: Path, there: bool) -> None:
    (place / "password").write_text("\n") if there else (place / "password").unlink()
    server = start(env, place)
    _, said = server.communicate(timeout=10)
    assert server.returncode != 0
    assert (b"is empty; make a password with" if there else b"No such file") in said


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's switch is Linux only")
def test_jobs_run_without_memory_that_is_writable_and_executable(redis_url: str, conn: redis.Redis) -> None:
    """What the systemd unit takes away of that kind (MemoryDenyWriteExecute, NoNewPrivileges), here by the kernel's own switches."""
    code = (
        "import ctypes, os, sys; libc = ctypes.CDLL(None)\n"
        "if libc.prctl(65, 1, 0, 0, 0) or libc.prctl(38, 1, 0, 0, 0): sys.exit(77)\n"
        "os.execv(sys.executable, [sys.executable, 'run_worker.py', 'worker', '--burst', '--customq', 'sms', *sys.argv[1:]])"
    )
    for mode in ([], ["--horses", "2"]):
        jobs = [Queue("sms", conn).enqueue("tests.jobs.basic.noop") for _ in range(3)]
        settings = {**os.environ, "FUSION_REDIS_URL": redis_url, "FUSION_TASKS": "tests.jobs.basic"}
        done = subprocess.run(
            [sys.executable, "-c", code, *mode], cwd=ROOT, env=settings, capture_output=True, text=True, timeout=50, check=False
        )
        if done.returncode == 77:
            pytest.skip("this kernel has no such switch (6.3)")
        assert done.returncode == 0, done.stderr
        assert {job.get_status() for job in jobs} == {"finished"}
