"""A real supervisor with its workers, started by the real command line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import redis

from tests.support import eventually
from tests.worker.harness import ROOT, alive

GATED = "tests.jobs.basic.until_gone"
READY = re.compile(r"worker \d+ \(pid (\d+), \S+\) is ready")


class Service:
    """`run_worker.py start` in a session of its own, with a log file. Workers alone, unless a test is about the scheduler beside them."""

    def __init__(self, redis_url: str, log: Path, *args: str, env: dict[str, str] | None = None, scheduler: bool = False) -> None:
        self.log = log
        self.seen: set[psutil.Process] = set()
        settings = {
            "FUSION_REDIS_URL": redis_url,
            "FUSION_TASKS": "tests.jobs.basic",
            "FUSION_TIMEOUT_GRACE": "0.5",
            "PYTHONUNBUFFERED": "1",
        }
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "run_worker.py", "start", *([] if scheduler else ["--no-scheduler"]), *args],
                cwd=ROOT,
                env={**os.environ, **settings, **(env or {})},
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

    def count(self, text: str) -> int:
        return self.output.count(text)

    def until(self, text: str, times: int = 1, timeout: float = 15.0) -> None:
        """The log has `text` so often."""
        try:
            eventually(lambda: self.count(text) >= times, timeout, why=f"{times} times in the log: {text}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from None

    def workers(self) -> list[psutil.Process]:
        """Living workers, oldest first."""
        return self._living("worker")

    def schedulers(self) -> list[psutil.Process]:
        return self._living("scheduler")

    def _living(self, command: str) -> list[psutil.Process]:
        try:
            children = psutil.Process(self.pid).children()
            found = [child for child in children if child.status() != psutil.STATUS_ZOMBIE and command in child.cmdline()]
        except psutil.NoSuchProcess:
            return []
        self.seen |= set(found)
        return sorted(found, key=lambda child: child.create_time())

    def ready_pids(self) -> list[int]:
        """Pids of all workers that ever became ready."""
        return [int(pid) for pid in READY.findall(self.output)]

    def wait_ready(self, workers: int, timeout: float = 30.0) -> Service:
        def ready() -> bool:
            assert self.process.poll() is None, self.output
            return len([pid for pid in self.ready_pids() if alive(pid)]) >= workers

        try:
            eventually(ready, timeout, why=f"{workers} workers are ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from None
        self.note()
        return self

    def until_ready(self, times: int) -> None:
        """So many workers have become ready since the start, dead ones included."""
        eventually(lambda: len(self.ready_pids()) >= times, 15, why=f"{times} workers became ready")

    def note(self) -> None:
        """Remember all processes there are, for `nothing_left`."""
        self.seen |= set(self.tree())

    def tree(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def signal_tree(self, number: int) -> None:
        """As systemd without KillMode=mixed, and Heroku, do it."""
        for process in [psutil.Process(self.pid), *self.tree()]:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue  # a spare that went meanwhile

    def ended(self, code: int, timeout: float = 20.0) -> None:
        try:
            assert self.process.wait(timeout) == code, self.output
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the supervisor did not end within {timeout} s:\n{self.output}") from None
        self.nothing_left()

    def nothing_left(self, timeout: float = 5.0) -> None:
        eventually(lambda: not [p.pid for p in self.seen if alive(p.pid)], timeout, why="no process is left")

    def worker_of(self, conn: redis.Redis, job_id: str) -> psutil.Process:
        """The worker that runs a job."""
        name = conn.hget(f"rq:job:{job_id}", "worker_name")
        assert name is not None
        return psutil.Process(int(conn.hget(b"rq:worker:" + name, "pid") or 0))

    def stop(self) -> None:
        """For the end of a test, whatever it did."""
        for child in [*self.workers(), *self.schedulers()]:
            child.send_signal(signal.SIGCONT)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGQUIT)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


class Services:
    """Starts supervisors and ends them with the test."""

    def __init__(self, redis_url: str, directory: Path) -> None:
        self.redis_url, self._directory = redis_url, directory
        self._started: list[Service] = []

    def start(
        self, workers: int, *args: str, ready: bool = True, env: dict[str, str] | None = None, scheduler: bool = False
    ) -> Service:
        log = self._directory / f"service{len(self._started)}.log"
        service = Service(self.redis_url, log, "-n", str(workers), *args, env=env, scheduler=scheduler)
        self._started.append(service)
        return service.wait_ready(workers) if ready else service

    def stop(self) -> None:
        for service in self._started:
            service.stop()
