"""A real worker process for a test, started by the real command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from fusion.store.server_binary import ServerBinary
from tests import guarded
from tests.support import eventually

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ("run_worker.py", "worker")
#: `make test-pool`: workers have warm processes, this many or, where a test says `--slots`, as many as that.
HORSES = os.environ.get("FUSION_TEST_HORSES", "")


def process_per_job(reason: str) -> pytest.MarkDecorator:
    """For a test of what only a process per job does; `reason`: what pool mode does in its place."""
    return pytest.mark.skipif(bool(HORSES), reason=reason)


def _mode(args: tuple[str, ...], env: dict[str, str]) -> dict[str, str]:
    if not HORSES or "--horses" in args or "FUSION_HORSES" in env:
        return {}
    slots = args[args.index("--slots") + 1] if "--slots" in args else env.get("FUSION_SLOTS", HORSES)
    return {"FUSION_HORSES": slots}


class WorkerProcess:
    """`run_worker.py worker` with a log file. `env` adds to the environment; leases and intervals are short unless a test says otherwise."""

    def __init__(
        self, redis_url: str, log: Path, *args: str, env: dict[str, str] | None = None, program: tuple[str, ...] = COMMAND
    ) -> None:
        self.log = log
        settings = {
            "FUSION_REDIS_URL": redis_url,
            "FUSION_TASKS": "tests.jobs.basic",
            "FUSION_LEASE": "30",
            "FUSION_TIMEOUT_GRACE": "0.5",
            "PYTHONUNBUFFERED": "1",
        }
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, *program, *args],
                cwd=ROOT,
                env={**os.environ, **settings, **_mode(args, env or {}), **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_ready(self, timeout: float = 15.0) -> WorkerProcess:
        """Registered, and its fork server has loaded the task modules."""
        try:
            eventually(lambda: "ready for jobs" in self.output or self.process.poll() is not None, timeout, why="worker ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from None
        assert self.process.poll() is None, self.output
        return self

    def wait(self, timeout: float = 15.0) -> int:
        """Its exit code, once it has ended by itself."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end within {timeout} s:\n{self.output}") from None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def tree(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)

    def fork_server(self) -> psutil.Process:
        """The one that lives: another may have ended and wait to be reaped."""
        (server,) = (child for child in psutil.Process(self.pid).children() if alive(child.pid))
        return server

    def horses(self) -> list[psutil.Process]:
        """Spares and busy ones."""
        return self.fork_server().children()

    def stop(self) -> None:
        """For the end of a test: let it go warm, then hard."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGQUIT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


class Workers:
    """Starts workers on one Redis and ends them with the test."""

    def __init__(self, redis_url: str, directory: Path) -> None:
        self.redis_url, self._directory = redis_url, directory
        self._started: list[WorkerProcess] = []

    def start(
        self,
        *args: str,
        ready: bool = True,
        env: dict[str, str] | None = None,
        url: str | None = None,
        program: tuple[str, ...] = COMMAND,
    ) -> WorkerProcess:
        log = self._directory / f"worker{len(self._started)}.log"
        worker = WorkerProcess(url or self.redis_url, log, *args, env=env, program=program)
        self._started.append(worker)
        return worker.wait_ready() if ready else worker

    def burst(self, *args: str, env: dict[str, str] | None = None, timeout: float = 30.0, code: int = 0) -> WorkerProcess:
        """A worker that runs what there is and ends with this code: 3 if it leaves held jobs."""
        worker = self.start(*args, "--burst", ready=False, env=env)
        ended = worker.wait(timeout)
        assert ended == code, worker.output
        return worker

    def stop(self) -> None:
        for worker in self._started:
            worker.stop()


def status_of(conn: redis.Redis, job_id: str) -> str:
    raw = conn.hget(f"rq:job:{job_id}", "status")
    return raw.decode() if raw else "missing"


def lines(path: Path) -> Iterator[str]:
    if path.exists():
        yield from path.read_text().splitlines()


class PrivateRedis:
    """A server with an AOF that one test has to itself, and that loses nothing when it is killed: with `everysec` Redis answers before it
    has written what an fsync under way on a slow disk holds up."""

    def __init__(self, home: str, binary: ServerBinary) -> None:
        self._server = guarded.RedisOfTests(home, persistent=True, server=binary)
        self._start()
        self.conn = guarded.client(self.url)

    def _start(self) -> None:
        self.url = self._server.start()
        conn = guarded.admin_client(self.url)
        conn.config_set("appendfsync", "always")
        conn.close()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._server.process is not None
        return self._server.process

    def pause(self) -> None:
        """It takes connections and commands, and answers none of them."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def revive(self) -> None:
        """Running, whatever the test did."""
        if self.process.poll() is None:
            self.resume()
        self._start()

    def close(self) -> None:
        self.conn.close()
        self.revive()
        self._server.stop()


def field(conn: redis.Redis, job_id: str, name: str) -> str:
    """A field of a job's hash; empty if it is not there."""
    raw = conn.hget(f"rq:job:{job_id}", name)
    return raw.decode("utf-8", "replace") if raw else ""


def runs_of(path: Path, word: str, job_id: str = "") -> list[int]:
    """Pids of the runs that left `word` in the witness file, of one job or of all."""
    found = (line.split() for line in lines(path))
    return [int(pid) for said, job, pid in found if said == word and job_id in ("", job)]


def alive(pid: int) -> bool:
    """A zombie is dead."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_may_recover(conn: redis.Redis) -> None:
    """The fleet no longer holds off burying the dead, as it does for one lease after it was started."""

    def over() -> bool:
        hold = conn.hget("rq:reap", "hold")
        seconds, micros = conn.time()
        return hold is not None and int(hold) <= seconds * 1000 + micros // 1000

    eventually(over, why="the hold-off after a start is over")
