"""A real supervisor with its workers, started by the real command line."""

from __future__ import annotations

import re
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import redis

from tests.kit.process import Group, ProcessUnderTest
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, arguments_of

GATED = "tests.jobs.basic.until_gone"
READY = re.compile(r"worker \d+ \(pid (\d+), \S+\) is ready")


class Service(ProcessUnderTest):
    """`run_worker.py start`. Workers alone, unless a test is about the scheduler beside them."""

    def __init__(self, redis_url: str, log: Path, *args: str, env: dict[str, str] | None = None, scheduler: bool = False) -> None:
        self.seen: set[psutil.Process] = set()
        super().__init__(redis_url, log, "run_worker.py", "start", *([] if scheduler else ["--no-scheduler"]), *args, env=env)

    @property
    def is_over(self) -> bool:
        """Never: its workers go on without it, with the same log."""
        return False

    def workers(self) -> list[psutil.Process]:
        """Living workers, oldest first."""
        return self._living("worker")

    def schedulers(self) -> list[psutil.Process]:
        return self._living("scheduler")

    def _living(self, command: str) -> list[psutil.Process]:
        try:
            found = [child for child in psutil.Process(self.pid).children() if command in arguments_of(child)]
        except psutil.NoSuchProcess:
            return []
        self.seen |= set(found)
        return sorted(found, key=lambda child: child.create_time())

    def ready_pids(self) -> list[int]:
        """Pids of all workers that ever became ready."""
        return [int(pid) for pid in READY.findall(self.output)]

    def wait_ready(self, workers: int, timeout: float = 30.0) -> Service:
        self.until(lambda: sum(map(alive, self.ready_pids())) >= workers, timeout, f"{workers} workers are ready")
        self.note()
        return self

    def until_ready(self, times: int) -> None:
        """This many workers have become ready since the start, dead ones included."""
        eventually(lambda: len(self.ready_pids()) >= times, 15, why=f"{times} workers became ready")

    def note(self) -> None:
        """Remember all processes there are, for `nothing_left`."""
        self.seen |= set(self.tree())

    def signal_tree(self, number: int) -> None:
        """As systemd without KillMode=mixed, and Heroku, do it."""
        for process in [psutil.Process(self.pid), *self.tree()]:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue  # a spare that went meanwhile

    def ended(self, code: int, timeout: float = 20.0) -> None:
        assert self.wait(timeout) == code, self.output
        self.nothing_left()

    def nothing_left(self, timeout: float = 5.0) -> None:
        eventually(lambda: not [p.pid for p in self.seen if alive(p.pid)], timeout, why="no process is left")

    def worker_of(self, conn: redis.Redis, job_id: str) -> psutil.Process:
        """The worker that runs a job."""
        name = conn.hget(f"rq:job:{job_id}", "worker_name")
        assert name is not None
        return psutil.Process(int(conn.hget(b"rq:worker:" + name, "pid") or 0))

    def dismiss(self) -> None:
        for child in [*self.workers(), *self.schedulers()]:
            with suppress(psutil.NoSuchProcess):  # it may end meanwhile
                child.send_signal(signal.SIGCONT)
        super().dismiss()


class Services(Group):
    """Starts supervisors and ends them with the test."""

    word = "service"

    def start(
        self, workers: int, *args: str, ready: bool = True, env: dict[str, str] | None = None, scheduler: bool = False
    ) -> Service:
        service = Service(self.redis_url, self.next_log(), "-n", str(workers), *args, env=env, scheduler=scheduler)
        self._started.append(service)
        return service.wait_ready(workers) if ready else service
